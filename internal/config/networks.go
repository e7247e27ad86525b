// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
)

// ServesNetworks says whether the agent itself makes the further interfaces that a pod asks for by
// the annotation k8s.v1.cni.cncf.io/networks. In YAML it is auto, true or false.
type ServesNetworks string

// The answers. ServesAuto means: unless cni.confDir holds a configuration of Multus, which then
// calls the plugin for each.
const (
	ServesAuto   ServesNetworks = "auto"
	ServesAlways ServesNetworks = "true"
	ServesNever  ServesNetworks = "false"
)

// UnmarshalJSON takes a boolean or a string; Validate refuses other strings than the constants.
func (s *ServesNetworks) UnmarshalJSON(data []byte) error {
	if bytes.Equal(data, []byte("true")) || bytes.Equal(data, []byte("false")) {
		*s = ServesNetworks(data)
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("servesNetworks: %s is not one of auto, true, false", data)
	}
	*s = ServesNetworks(text)
	return nil
}

// physicalNetwork is the form of a Network's spec.physicalNetwork, too.
var physicalNetwork = regexp.MustCompile(`^[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$`)

// Uplink is a network card that leads to a physical network.
type Uplink struct {
	// Interface is the card's name.
	Interface string `json:"interface"`
	// Bridge is made for the card; empty: br- and the physical network's name.
	Bridge string `json:"bridge"`
	// Shared says that the physical network is the node's own: the card's addresses, the node's
	// among them, move to the bridge. Otherwise a card that the node needs is refused.
	Shared bool `json:"shared"`
}

// PhysicalNetworks are the bridges that lead to physical networks, by their names: those of
// BridgeMappings and of Uplinks.
func (c Config) PhysicalNetworks() map[string]string {
	all := make(map[string]string, len(c.BridgeMappings)+len(c.Uplinks))
	maps.Copy(all, c.BridgeMappings)
	for name, u := range c.Uplinks {
		all[name] = u.bridge(name)
	}
	return all
}

// bridge is that of the uplink to the physical network of a name.
func (u Uplink) bridge(physical string) string { return cmp.Or(u.Bridge, "br-"+physical) }

// validateUplinks refuses cards that cannot be taken, and what validateBridgeMappings does.
func (c Config) validateUplinks() error {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf(field+": "+format, args...))
	}
	bridges, cards := map[string]string{}, map[string]string{} // to what has them
	for name, bridge := range c.BridgeMappings {
		bridges[bridge] = "bridgeMappings[" + name + "]"
	}
	for _, name := range slices.Sorted(maps.Keys(c.Uplinks)) {
		u, field := c.Uplinks[name], fmt.Sprintf("uplinks[%s]", name)
		if !physicalNetwork.MatchString(name) {
			bad("uplinks", notPhysical, name)
		}
		if _, mapped := c.BridgeMappings[name]; mapped {
			bad(field, "bridgeMappings has a bridge for it: leave out one of the two")
		}
		if err := ifName(field+".interface", u.Interface); err != nil {
			errs = append(errs, err)
		}
		bridge := u.bridge(name)
		if err := ifName(field+".bridge", bridge); err != nil {
			errs = append(errs, fmt.Errorf("%w: set another one", err))
			continue
		}
		for _, own := range []string{c.Bridge, c.GatewayInterface} {
			if u.Interface == own || bridge == own {
				bad(field, "%q is Coelan's own: name a network card, and another bridge", own)
			}
		}
		if u.Interface == bridge {
			bad(field, "interface and bridge are both %q: set another bridge", bridge)
		}
		if other, taken := bridges[bridge]; taken {
			bad(field, "%q is also the bridge of %s", bridge, other)
		}
		if other, taken := cards[u.Interface]; taken {
			bad(field, "%q is also the interface of %s: Networks of several VLANs can name one physical network",
				u.Interface, other)
		}
		bridges[bridge], cards[u.Interface] = field, field
	}
	return errors.Join(errs...)
}

// notPhysical says so of a name.
const notPhysical = "%q is not the name of a physical network: at most 63 letters, digits and -_. between letters or digits"

// validateBridgeMappings refuses what would connect two physical networks, or one to all pods.
func (c Config) validateBridgeMappings() error {
	var errs []error
	network := map[string]string{} // by bridge
	for _, name := range slices.Sorted(maps.Keys(c.BridgeMappings)) {
		field, bridge := fmt.Sprintf("bridgeMappings[%s]", name), c.BridgeMappings[name]
		if !physicalNetwork.MatchString(name) {
			errs = append(errs, fmt.Errorf("bridgeMappings: "+notPhysical, name))
		}
		if err := ifName(field, bridge); err != nil {
			errs = append(errs, err)
			continue
		}
		if bridge == c.Bridge {
			errs = append(errs,
				fmt.Errorf("%s: %q is the integration bridge: name the one with the uplink", field, bridge))
		}
		if other, taken := network[bridge]; taken {
			errs = append(errs, fmt.Errorf("%s: %q is also the bridge of %q", field, bridge, other))
		}
		network[bridge] = name
	}
	return errors.Join(errs...)
}
