// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"strings"

	"coelan.io/coelan/api/v1alpha1"
)

// ClaimedFor names what a block of a single address is for, such as "floatingip a/web".
func ClaimedFor(b *v1alpha1.AddressBlock) string {
	router, node, gateway := strings.Cut(b.Spec.Gateway, "/")
	switch {
	case gateway && node == v1alpha1.AnyNode:
		return "gateway of router " + router
	case gateway:
		return "gateway of router " + router + " on node " + node
	case b.Spec.FloatingIP != "":
		return "floatingip " + b.Spec.FloatingIP
	case b.Spec.Egress != "":
		return "egress " + b.Spec.Egress
	case b.Spec.Port == "":
		return "addressblock " + b.Name
	case b.Spec.Node == "":
		return "port " + b.Spec.Port
	}
	return "port " + b.Spec.Port + " on node " + b.Spec.Node
}

// ClaimedOutside reports whether a block is for what has its address outside of the cluster: a
// FloatingIP, a Router's gateway or an Egress.
func ClaimedOutside(b *v1alpha1.AddressBlock) bool {
	return b.Spec.FloatingIP != "" || b.Spec.Gateway != "" || b.Spec.Egress != ""
}
