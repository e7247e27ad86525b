// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"net/netip"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/controller/reconcile"
)

// claimant is what addresses are claimed for: a user's Port, a FloatingIP, or a node that is a
// Router's gateway.
type claimant struct {
	spec  v1alpha1.AddressBlockSpec // of its claims: with its key alone
	index string                    // by which the claims of its key are found
	// had is the address in its status: of several claims, that one counts, and without any it is
	// tried first.
	had netip.Addr
}

func claimantPort(p *v1alpha1.Port) claimant {
	return claimant{spec: v1alpha1.AddressBlockSpec{Port: key(p)}, index: reconcile.ByPort}
}

func claimantFloatingIP(f *v1alpha1.FloatingIP) claimant {
	had, _ := netip.ParseAddr(f.Status.Address) // not valid: it has none
	return claimant{
		spec: v1alpha1.AddressBlockSpec{FloatingIP: key(f)}, index: reconcile.ByFloatingIP, had: had,
	}
}

func claimantGateway(router, node string) claimant {
	return claimant{spec: v1alpha1.AddressBlockSpec{Gateway: router + "/" + node}}
}

// key is namespace/name, as AddressBlocks name a Port or FloatingIP as their claimant.
func (c claimant) key() string { return c.spec.Port + c.spec.FloatingIP }

// claimed reports whether the controller has made a block for the claimant.
func (c claimant) claimed(b *v1alpha1.AddressBlock) bool {
	return b.Spec.Node == "" && b.Spec.Port == c.spec.Port && b.Spec.FloatingIP == c.spec.FloatingIP &&
		b.Spec.Gateway == c.spec.Gateway
}

// ofController reports whether a block is one that the controller claims single addresses of.
func ofController(b *v1alpha1.AddressBlock) bool {
	return b.Spec.Node == "" && b.Spec.Port == "" && b.Spec.FloatingIP == "" && b.Spec.Gateway == ""
}

// key is that of a Port or FloatingIP, as AddressBlocks name it.
func key(o client.Object) string { return o.GetNamespace() + "/" + o.GetName() }
