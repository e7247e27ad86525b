// SPDX-License-Identifier: Apache-2.0

package podplan

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni"
	"coelan.io/coelan/internal/intent"
)

// offerTimeout bounds the wait for what the controller says of a port of Neutron, which it asks
// Neutron for.
const offerTimeout = 25 * time.Second

// fromNeutron gives an interface what the port of Neutron has that CNI_ARGS name. Whether the pod
// can have the port is the controller's to say: it answers in the status of a Port that asks.
func (p *Planner) fromNeutron(ctx context.Context, ask cni.Request, i attachment.Plan) (attachment.Plan, error) {
	if ask.NeutronPort == "" {
		return i, nil
	}
	refuse := func(reason, format string, args ...any) error {
		return refused(reason, "PORT_UUID %s in CNI_ARGS: "+format, append([]any{ask.NeutronPort}, args...)...)
	}
	switch {
	case !p.Neutron:
		return i, refuse(v1alpha1.ReasonInvalid, "there are ports of Neutron with the backend neutron alone")
	case !i.BlockSpace:
		return i, refuse(v1alpha1.ReasonInvalid, "the addresses of Network %s are those of nodes' podCIDRs: "+
			"make a Network with subnets of its own, and the port on that one's network", i.NetworkName)
	case i.Leased:
		return i, refuse(v1alpha1.ReasonInvalid, "DHCP servers of a physical network give the addresses of Network %s", i.NetworkName)
	}
	i.NeutronPort = ask.NeutronPort
	spec := i.Spec
	spec.Key, spec.PodUID, spec.PodNamespace, spec.PodName = ask.Key, ask.PodUID, ask.PodNamespace, ask.PodName
	spec.PortName = attachment.PortName(ask.PodName, ask.IfName)
	uid, err := p.Ports.Ask(ctx, attachment.Attachment{Spec: spec})
	if err != nil {
		return i, early(v1alpha1.ReasonNetworkNotReady, "PORT_UUID %s in CNI_ARGS: %v", ask.NeutronPort, err)
	}
	offer, err := p.offer(ctx, spec.PortKey(), uid)
	if err != nil {
		return i, err
	}
	if offer.Refused != "" {
		return i, refuse(v1alpha1.ReasonNotAllowed, "%s", offer.Refused)
	}
	mac, err := intent.ParseMAC(offer.MAC)
	if err != nil {
		return i, refuse(v1alpha1.ReasonInvalid, "MAC of the port: %v", err)
	}
	if i.MAC != nil && *i.MAC != mac {
		return i, refuse(v1alpha1.ReasonInvalid, "its MAC is %s, and %s is asked for", mac, i.MAC)
	}
	var addresses []netip.Addr
	for _, text := range offer.Addresses {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return i, refuse(v1alpha1.ReasonInvalid, "address of the port: %v", err)
		}
		addresses = append(addresses, a)
	}
	for _, a := range i.Addresses {
		if !slices.Contains(addresses, a) {
			return i, refuse(v1alpha1.ReasonInvalid, "its addresses are %v, and %s is asked for", addresses, a)
		}
	}
	i.Addresses, i.MAC = addresses, &mac
	return i, nil
}

// offer waits for the answer in the status of the Port of that UID.
func (p *Planner) offer(ctx context.Context, key string, uid types.UID) (*v1alpha1.NeutronOffer, error) {
	ctx, cancel := context.WithTimeout(ctx, offerTimeout)
	defer cancel()
	s, answered := p.View.Await(ctx, func(s apicache.State) bool {
		o := s.Ports.Get(key)
		return o != nil && o.UID == uid && o.Status.Offered != nil
	})
	if !answered {
		return nil, early(v1alpha1.ReasonNetworkNotReady,
			"port %s: the controller has not said what its port of Neutron has: is coelan-controller running, and Neutron?", key)
	}
	return s.Ports.Get(key).Status.Offered, nil
}
