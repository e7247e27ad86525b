// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni/netconf"
	"coelan.io/coelan/internal/cni/podnet"
)

// resultOf is what ADD returns: for each interface, the call's own one first, the host's end, the
// pod's end with its addresses, and its routes; and the DNS settings of the call's Network or else
// of the configuration.
func resultOf(g group, conf netconf.Config) *types100.Result {
	result := &types100.Result{CNIVersion: types100.ImplementedSpecVersion, DNS: conf.DNS}
	if g[0].DNS != nil {
		result.DNS = *g[0].DNS
	}
	for _, a := range g {
		result.Interfaces = append(result.Interfaces,
			&types100.Interface{Name: a.HostInterface, Mac: podnet.HostMAC(a.MAC).String(), Mtu: a.MTU},
			&types100.Interface{Name: a.IfName, Mac: a.MAC.String(), Mtu: a.MTU, Sandbox: a.Netns})
		addresses, gateways := runtimeAddresses(a)
		for i, addr := range addresses {
			result.IPs = append(result.IPs, &types100.IPConfig{
				Interface: types100.Int(len(result.Interfaces) - 1), Address: ipNet(addr),
				Gateway: gateways[i].AsSlice(),
			})
		}
		for _, r := range a.AllRoutes() {
			result.Routes = append(result.Routes, &types.Route{Dst: ipNet(r.Destination), GW: r.NextHop.AsSlice()})
		}
	}
	return result
}

// runtimeAddresses are the addresses that the runtime, and with it Kubernetes, knows an interface
// by: those of the node's podCIDRs if there are some, because the others mean nothing outside of
// the Network's Router.
func runtimeAddresses(a attachment.Attachment) ([]netip.Prefix, []netip.Addr) {
	if len(a.NodeAddresses) > 0 {
		return a.NodeAddresses, a.NodeGateways
	}
	return a.Addresses, a.Gateways
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// encodeResult prints a result in the version that the configuration asks for.
func encodeResult(result *types100.Result, version string) ([]byte, error) {
	converted, err := result.GetAsVersion(version)
	if err != nil {
		return nil, fmt.Errorf("result in version %s: %w", version, err)
	}
	var out bytes.Buffer
	if err := converted.PrintTo(&out); err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	return out.Bytes(), nil
}
