// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"net/netip"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/translate"
)

// claimant is what addresses are claimed for: a user's Port, a FloatingIP, a node that is the
// gateway of a Router, a Router with a centralized gateway, or an Egress.
type claimant struct {
	spec  v1alpha1.AddressBlockSpec // of its claims: with its key alone
	index string                    // by which the claims of its key are found
	// had are the addresses in its status: of more claims than it is to have, these count, and
	// without claims they are tried first.
	had []netip.Addr
}

func claimantPort(p *v1alpha1.Port) claimant {
	return claimant{spec: v1alpha1.AddressBlockSpec{Port: key(p)}, index: reconcile.ByPort}
}

func claimantFloatingIP(f *v1alpha1.FloatingIP) claimant {
	return claimant{
		spec: v1alpha1.AddressBlockSpec{FloatingIP: key(f)}, index: reconcile.ByFloatingIP,
		had: parsed(f.Status.Address),
	}
}

// parsed are those of the texts that are addresses.
func parsed(texts ...string) (list []netip.Addr) {
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil {
			list = append(list, a)
		}
	}
	return list
}

func claimantGateway(router, node string) claimant {
	return claimant{spec: v1alpha1.AddressBlockSpec{Gateway: router + "/" + node}}
}

func claimantCentralized(r *v1alpha1.Router) claimant {
	c := claimantGateway(r.Name, v1alpha1.AnyNode)
	c.had = parsed(r.Status.GatewayAddresses...)
	return c
}

func claimantEgress(e *v1alpha1.Egress) claimant {
	return claimant{spec: v1alpha1.AddressBlockSpec{Egress: e.Name}, had: parsed(e.Status.Addresses...)}
}

// key is namespace/name, as AddressBlocks name a Port or FloatingIP as their claimant.
func (c claimant) key() string { return c.spec.Port + c.spec.FloatingIP }

// claimed reports whether the controller has made a block for the claimant.
func (c claimant) claimed(b *v1alpha1.AddressBlock) bool {
	return b.Spec.Node == "" && b.Spec.Port == c.spec.Port && b.Spec.FloatingIP == c.spec.FloatingIP &&
		b.Spec.Gateway == c.spec.Gateway && b.Spec.Egress == c.spec.Egress
}

// ofController reports whether a block is one that the controller claims single addresses of.
func ofController(b *v1alpha1.AddressBlock) bool {
	return b.Spec.Node == "" && b.Spec.Port == "" && !translate.ClaimedOutside(b)
}

// key is that of a Port or FloatingIP, as AddressBlocks name it.
func key(o client.Object) string { return o.GetNamespace() + "/" + o.GetName() }
