// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"coelan.io/coelan/internal/cni/netconf"
	"coelan.io/coelan/internal/cni/wire"
	"coelan.io/coelan/internal/intent"
)

// addressArgs are addresses and a MAC as the conventions of the CNI project have them.
type addressArgs struct {
	IPs []string `json:"ips"`
	MAC string   `json:"mac"`
	// port are the pairs of CNI_ARGS with portKeys.
	port map[string]string
}

// read fills in what the configuration and CNI_ARGS ask for. The first of runtimeConfig, args and
// CNI_ARGS that has addresses decides about them, and the same for the MAC.
func (r *Request) read(conf netconf.Config, args addressArgs) error {
	if conf.Network != "" && conf.NFNNetwork != "" && conf.Network != conf.NFNNetwork {
		return newError(wire.CodeInvalidConfig,
			fmt.Sprintf("network %q and nfn-network %q in the network configuration name different Networks",
				conf.Network, conf.NFNNetwork), "")
	}
	if r.Network = conf.Network; r.Network == "" {
		r.Network = conf.NFNNetwork
	}
	r.VNI = conf.VNI
	var runtime, cni addressArgs
	var general struct {
		CNI json.RawMessage `json:"cni"`
	}
	if err := decodePart("runtimeConfig", conf.RuntimeConfig, &runtime); err != nil {
		return err
	}
	if err := decodePart("args", conf.Args, &general); err != nil {
		return err
	}
	if err := decodePart("args.cni", general.CNI, &cni); err != nil {
		return err
	}
	for _, from := range []struct {
		where string
		addressArgs
	}{
		{"runtimeConfig in the network configuration", runtime},
		{"args.cni in the network configuration", cni},
		{"CNI_ARGS", args},
	} {
		if err := r.take(from.where, from.addressArgs); err != nil {
			return err
		}
	}
	return nil
}

// decodePart reads a part of the configuration that may be left out.
func decodePart(name string, data json.RawMessage, into any) error {
	if len(data) == 0 {
		return nil
	}
	if err := json.Unmarshal(data, into); err != nil {
		return newError(wire.CodeInvalidConfig,
			fmt.Sprintf("%s in the network configuration has the value %s", name, shorten(data)), err.Error())
	}
	return nil
}

func (r *Request) take(where string, from addressArgs) error {
	if len(r.Addresses) == 0 {
		for _, text := range from.IPs {
			ip, err := parseIP(text)
			if err != nil {
				return newError(wire.CodeInvalidConfig, fmt.Sprintf("%s: address %q", where, text), err.Error())
			}
			r.Addresses = append(r.Addresses, ip)
		}
	}
	if r.MAC == nil && from.MAC != "" {
		mac, err := intent.ParseMAC(from.MAC)
		if err != nil {
			return newError(wire.CodeInvalidConfig, fmt.Sprintf("%s: MAC %q", where, from.MAC), err.Error())
		}
		r.MAC = &mac
	}
	return nil
}

// parseIP reads an address, which may come with a length: that of the Network's subnet counts.
func parseIP(text string) (netip.Addr, error) {
	text = strings.TrimSpace(text)
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Addr().Unmap(), nil
	}
	a, err := netip.ParseAddr(text)
	if err == nil && a.Zone() != "" {
		err = fmt.Errorf("it has a zone")
	}
	return a.Unmap(), err
}
