// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
)

// daemon is ovs-vswitchd's control socket. *appctl.Client is one.
type daemon interface {
	Call(ctx context.Context, method string, args ...string) (string, error)
}

// tracer follows a packet through the bridge, and names what decides about it.
type tracer struct {
	node, bridge string
	// native says that the bridge balances Services.
	native      bool
	intent      *intent.Store
	attachments *attachment.Store
	vswitchd    daemon
	flows       *flows
	numbers     *numbers
	uplinks     map[string]uint32
	refusals    *refusalReports
}

// trace asks ovs-vswitchd for the packet's way, and names what it finds.
func (t *tracer) trace(ctx context.Context, r agentapi.TraceRequest) (agentapi.Trace, error) {
	packet, err := t.packet(&r)
	if err != nil {
		return agentapi.Trace{}, err
	}
	args := []string{t.bridge, packet}
	for _, state := range r.Conntrack {
		args = append(args, "--ct-next", state)
	}
	text, err := t.vswitchd.Call(ctx, "ofproto/trace", args...)
	if err != nil {
		return agentapi.Trace{}, fmt.Errorf("ofproto/trace: %w", err)
	}
	way := t.explainTrace(packet, text)
	way.Service = tracedService(t.intent.State(), r, way)
	t.nameExternal(r, &way)
	way.Refused = t.refusals.onWay(r)
	return way, nil
}

// anyHash stands for the hash of a packet by which its endpoint is chosen, which
// ofproto/trace does not make.
const anyHash = "dp_hash=1"

func bad(format string, args ...any) error {
	return &backend.BadRequestError{Problem: fmt.Sprintf(format, args...)}
}

// packet writes the request as a flow that ofproto/trace understands.
func (t *tracer) packet(r *agentapi.TraceRequest) (string, error) {
	if !r.Destination.IsValid() {
		return "", bad("destination: is missing")
	}
	var f, tag []string
	var err error
	switch r.From {
	case "":
		return "", bad("from: is missing; name a pod of this node, gateway, tunnel or outside")
	case "gateway":
		f = t.fromGateway()
	case "tunnel":
		f, err = t.fromTunnel(*r)
	case "outside":
		f, tag, err = t.fromOutside(*r)
	default:
		f, err = t.fromPod(r)
	}
	if err != nil {
		return "", err
	}
	if !r.Source.IsValid() {
		return "", bad("source: is missing; it can be left out for a pod only")
	}
	if r.Source.Is4() != r.Destination.Is4() {
		return "", bad("source %s and destination %s are of different families", r.Source, r.Destination)
	}
	if t.native {
		f = append(f, anyHash)
	}
	header, err := networkHeader(*r)
	return strings.Join(slices.Concat(f, header, tag), ","), err
}

func (t *tracer) fromGateway() []string {
	return []string{
		fmt.Sprintf("in_port=%d", datapath.GatewayPort), "dl_src=" + datapath.GatewayMAC.String(),
		"dl_dst=" + datapath.RouterMAC.String(),
	}
}

func (t *tracer) fromTunnel(r agentapi.TraceRequest) ([]string, error) {
	if !r.TunnelSource.IsValid() || r.VNI == 0 {
		return nil, bad("tunnelSource and vni: are needed for a packet from the tunnel")
	}
	tun := "tun_src"
	if r.TunnelSource.Is6() {
		tun = "tun_ipv6_src"
	}
	to := datapath.RouterMAC
	if r.MAC != "" {
		var err error
		if to, err = intent.ParseMAC(r.MAC); err != nil {
			return nil, bad("mac: %v", err)
		}
	}
	return []string{
		fmt.Sprintf("in_port=%d", datapath.TunnelPort), fmt.Sprintf("tun_id=%d", r.VNI),
		tun + "=" + r.TunnelSource.String(),
		"dl_src=" + datapath.RouterMAC.String(), "dl_dst=" + to.String(),
	}, nil
}

// fromPod also fills in the source. A pod sends directly to its neighbors, and all
// else to its router.
func (t *tracer) fromPod(r *agentapi.TraceRequest) ([]string, error) {
	at, err := t.findPod(r.From)
	if err != nil {
		return nil, err
	}
	to := datapath.RouterMAC
	for _, p := range at.Addresses {
		if p.Addr().Is4() != r.Destination.Is4() {
			continue
		}
		if !r.Source.IsValid() {
			r.Source = p.Addr()
		}
		if peer, ok := t.portOn(at.NetworkName, r.Destination); ok && p.Contains(r.Destination) {
			to = peer.MAC
		}
	}
	if !r.Source.IsValid() {
		return nil, bad("%s has no address of the family of %s", r.From, r.Destination)
	}
	return []string{fmt.Sprintf("in_port=%d", at.OFPort), "dl_src=" + at.MAC.String(), "dl_dst=" + to.String()}, nil
}

// findPod finds the attachment of namespace/name/interface, or the first one of namespace/name. A
// user's Port is namespace/name.
func (t *tracer) findPod(name string) (attachment.Attachment, error) {
	var found *attachment.Attachment
	for _, at := range t.attachments.List() {
		switch {
		case at.PodRef() == name || at.IsPort() && at.PortKey() == name:
			return at, nil
		case at.PodNamespace+"/"+at.PodName == name && (found == nil || first(at)):
			found = &at
		}
	}
	if found == nil {
		return attachment.Attachment{}, bad("from: node %s has no pod %s", t.node, name)
	}
	return *found, nil
}

// first says whether an attachment is its pod's first interface. What an older release recorded
// does not say so.
func first(at attachment.Attachment) bool { return at.Primary || at.NetworkName == "" }

// portOn finds the port on a network that has an address; an empty network is the default one.
func (t *tracer) portOn(network string, address netip.Addr) (intent.Port, bool) {
	for p := range t.intent.State().PortsWith(address) {
		if p.Network == cmp.Or(network, intent.DefaultNetworkName) {
			return p, true
		}
	}
	return intent.Port{}, false
}

// networkHeader writes addresses, protocol and ports.
func networkHeader(r agentapi.TraceRequest) ([]string, error) {
	if r.TTL == 0 {
		r.TTL = 64
	}
	src, dst, suffix := "nw_src", "nw_dst", ""
	if r.Source.Is6() {
		src, dst, suffix = "ipv6_src", "ipv6_dst", "6"
	}
	var f []string
	switch r.Protocol {
	case "", "icmp":
		f = []string{"icmp", "icmp_type=8", "icmp_code=0"}
		if r.Source.Is6() {
			f = []string{"icmp6", "icmpv6_type=128", "icmpv6_code=0"}
		}
	case "tcp", "udp", "sctp":
		f = []string{
			r.Protocol + suffix, fmt.Sprintf("%s_src=%d", r.Protocol, r.SourcePort),
			fmt.Sprintf("%s_dst=%d", r.Protocol, r.DestinationPort),
		}
	default:
		return nil, bad("protocol: %q is not one of tcp, udp, sctp, icmp", r.Protocol)
	}
	return append(f, src+"="+r.Source.String(), dst+"="+r.Destination.String(), fmt.Sprintf("nw_ttl=%d", r.TTL)), nil
}
