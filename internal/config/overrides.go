// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	kjson "sigs.k8s.io/json"

	"coelan.io/coelan/api/v1alpha1"
)

// Overrides are settings of one node in place of the file's, in the same form. What is nil is as in
// the file; an empty map is none.
type Overrides struct {
	MTU            *int                      `json:"mtu,omitzero"`
	Encapsulation  *Encapsulation            `json:"encapsulation,omitzero"`
	BridgeMappings map[string]string         `json:"bridgeMappings,omitzero"`
	Uplinks        map[string]Uplink         `json:"uplinks,omitzero"`
	Subnets        map[string][]netip.Prefix `json:"subnets,omitzero"`
}

// ParseOverrides reads what Encode has written. A field that this release does not know is an
// error: what is not understood is not applied in part.
func ParseOverrides(data []byte) (Overrides, error) {
	var o Overrides
	strict, err := kjson.UnmarshalStrict(data, &o)
	return o, errors.Join(append(strict, err)...)
}

// Encode writes them as JSON. The same overrides have the same text.
func (o Overrides) Encode() ([]byte, error) { return json.Marshal(o) }

// With returns a configuration with these in place of its own settings, validated.
func (c Config) With(o Overrides) (Config, error) {
	if o.MTU != nil {
		c.MTU = *o.MTU
	}
	if o.Encapsulation != nil && *o.Encapsulation != c.Encapsulation {
		return Config{}, fmt.Errorf(
			"encapsulation: the ConfigMap has %s, and all nodes need the same, not %s: change it in the ConfigMap",
			c.Encapsulation, *o.Encapsulation)
	}
	if o.BridgeMappings != nil {
		c.BridgeMappings = o.BridgeMappings
	}
	if o.Uplinks != nil {
		c.Uplinks = o.Uplinks
	}
	if o.Subnets != nil {
		c.Subnets = o.Subnets
	}
	if err := c.Validate(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// validateSubnets refuses prefixes that no block can be of.
func (c Config) validateSubnets() error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.Subnets)) {
		field := fmt.Sprintf("subnets[%s]", name)
		switch {
		case name == v1alpha1.DefaultNetwork:
			errs = append(errs, fmt.Errorf(
				"%s: this Network has the podCIDRs of the nodes, which the controller manager gives", field))
		case len(c.Subnets[name]) == 0:
			errs = append(errs, fmt.Errorf("%s: must not be empty; leave it out to take blocks from anywhere", field))
		}
		errs = append(errs, prefixes(field, c.Subnets[name]))
	}
	return errors.Join(errs...)
}
