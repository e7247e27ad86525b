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
	case b.Spec.Port == "":
		return "addressblock " + b.Name
	case b.Spec.Node == "":
		return "port " + b.Spec.Port
	}
	return "port " + b.Spec.Port + " on node " + b.Spec.Node
}
