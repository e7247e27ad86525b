// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
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

// validateBridgeMappings refuses what would connect two physical networks, or one to all pods.
func (c Config) validateBridgeMappings() error {
	var errs []error
	network := map[string]string{} // by bridge
	for _, name := range slices.Sorted(maps.Keys(c.BridgeMappings)) {
		field, bridge := fmt.Sprintf("bridgeMappings[%s]", name), c.BridgeMappings[name]
		if !physicalNetwork.MatchString(name) {
			errs = append(errs, fmt.Errorf("bridgeMappings: %q is not the name of a physical network: "+
				"at most 63 letters, digits and -_. between letters or digits", name))
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
