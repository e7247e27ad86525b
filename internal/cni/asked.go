// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"coelan.io/coelan/internal/cni/wire"
	"coelan.io/coelan/internal/intent"
)

// firstInterface is what runtimes call the interface that a pod's address is that of.
const firstInterface = "eth0"

// asked is what a call asks for beside an interface: from the configuration's keys and from CNI_ARGS.
type asked struct {
	network string // name of a Coelan Network; empty: none
	ips     []netip.Addr
	mac     *intent.MAC
}

// delegate says whether a call is about just its own interface.
func (c call) delegate() bool { return c.network != "" || c.key.IfName != firstInterface }

func (c call) ask() Ask {
	return Ask{
		Namespace: c.pod.namespace, Pod: c.pod.name, UID: c.pod.uid,
		ContainerID: c.key.ContainerID, IfName: c.key.IfName, ConfName: c.conf.Name,
		Network: c.network, Delegate: c.delegate(), IPs: c.ips, MAC: c.mac,
	}
}

// addressArgs are addresses and a MAC as the conventions of the CNI project have them.
type addressArgs struct {
	IPs []string `json:"ips"`
	MAC string   `json:"mac"`
}

// read fills in what the configuration and CNI_ARGS ask for. The first of runtimeConfig, args and CNI_ARGS that has
// addresses decides about them, and the same for the MAC.
func (a *asked) read(conf netConf, pod podArgs) error {
	if conf.Network != "" && conf.NFNNetwork != "" && conf.Network != conf.NFNNetwork {
		return newError(wire.CodeInvalidConfig,
			fmt.Sprintf("network %q and nfn-network %q in the network configuration name different Networks", conf.Network, conf.NFNNetwork), "")
	}
	if a.network = conf.Network; a.network == "" {
		a.network = conf.NFNNetwork
	}
	var runtime, general addressArgs
	var args struct {
		CNI json.RawMessage `json:"cni"`
	}
	if err := decodePart("runtimeConfig", conf.RuntimeConfig, &runtime); err != nil {
		return err
	}
	if err := decodePart("args", conf.Args, &args); err != nil {
		return err
	}
	if err := decodePart("args.cni", args.CNI, &general); err != nil {
		return err
	}
	for _, from := range []struct {
		where string
		addressArgs
	}{
		{"runtimeConfig in the network configuration", runtime},
		{"args.cni in the network configuration", general},
		{"CNI_ARGS", pod.asked},
	} {
		if err := a.take(from.where, from.addressArgs); err != nil {
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
		return newError(wire.CodeInvalidConfig, fmt.Sprintf("%s in the network configuration has the value %s", name, shorten(data)), err.Error())
	}
	return nil
}

func (a *asked) take(where string, from addressArgs) error {
	if len(a.ips) == 0 {
		for _, text := range from.IPs {
			ip, err := parseIP(text)
			if err != nil {
				return newError(wire.CodeInvalidConfig, fmt.Sprintf("%s: address %q", where, text), err.Error())
			}
			a.ips = append(a.ips, ip)
		}
	}
	if a.mac == nil && from.MAC != "" {
		mac, err := intent.ParseMAC(from.MAC)
		if err != nil {
			return newError(wire.CodeInvalidConfig, fmt.Sprintf("%s: MAC %q", where, from.MAC), err.Error())
		}
		a.mac = &mac
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
