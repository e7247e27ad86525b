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
	"coelan.io/coelan/internal/cni/podnet"
)

// resultOf is what ADD returns for an attachment: the host's end, the pod's end with its
// addresses, a default route for each family, and the configuration's DNS settings.
func resultOf(a attachment.Attachment, conf netConf) *types100.Result {
	result := &types100.Result{
		CNIVersion: types100.ImplementedSpecVersion,
		Interfaces: []*types100.Interface{
			{Name: a.HostInterface, Mac: podnet.HostMAC(a.MAC).String(), Mtu: a.MTU},
			{Name: a.IfName, Mac: a.MAC.String(), Mtu: a.MTU, Sandbox: a.Netns},
		},
		DNS: conf.DNS,
	}
	for i, addr := range a.Addresses {
		gateway := net.IP(a.Gateways[i].AsSlice())
		result.IPs = append(result.IPs, &types100.IPConfig{
			Interface: types100.Int(1), Address: ipNet(addr), Gateway: gateway,
		})
		everything := netip.PrefixFrom(addr.Addr(), 0).Masked()
		result.Routes = append(result.Routes, &types.Route{Dst: ipNet(everything), GW: gateway})
	}
	return result
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
