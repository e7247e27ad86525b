// SPDX-License-Identifier: Apache-2.0

package nodeconfig

import (
	"fmt"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/config"
)

// encapsulations are the API's, as the agent's configuration has them.
var encapsulations = map[v1alpha1.Encapsulation]config.Encapsulation{
	v1alpha1.EncapsulationVXLAN: config.VXLAN, v1alpha1.EncapsulationGeneve: config.Geneve,
	v1alpha1.EncapsulationNone: config.NoEncap,
}

// Settings are what a NodeNetworkConfig sets, in the form of the agent's configuration.
func Settings(spec v1alpha1.NodeNetworkConfigSpec) (config.Overrides, error) {
	o := config.Overrides{BridgeMappings: spec.BridgeMappings}
	if spec.MTU != 0 {
		mtu := int(spec.MTU)
		o.MTU = &mtu
	}
	if spec.Encapsulation != "" {
		e, known := encapsulations[spec.Encapsulation]
		if !known {
			return o, fmt.Errorf("encapsulation: %q is not known", spec.Encapsulation)
		}
		o.Encapsulation = &e
	}
	if spec.Uplinks != nil {
		o.Uplinks = map[string]config.Uplink{}
		for name, u := range spec.Uplinks {
			o.Uplinks[name] = config.Uplink{Interface: u.Interface, Bridge: u.Bridge, Shared: u.Shared}
		}
	}
	for i, s := range spec.Subnets {
		if o.Subnets == nil {
			o.Subnets = map[string][]netip.Prefix{}
		}
		for j, text := range s.CIDRs {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				return o, fmt.Errorf("subnets[%d].cidrs[%d]: %w", i, j, err)
			}
			o.Subnets[s.Network] = append(o.Subnets[s.Network], p)
		}
	}
	return o, nil
}

// Check says what is wrong with a NodeNetworkConfig on every node. What depends on the node and on
// its ConfigMap, its agent checks.
func Check(spec v1alpha1.NodeNetworkConfigSpec) error {
	if spec.NodeName == "" {
		if _, err := metav1.LabelSelectorAsSelector(spec.NodeSelector); err != nil {
			return fmt.Errorf("nodeSelector: %w", err)
		}
	}
	o, err := Settings(spec)
	if err != nil {
		return err
	}
	base := config.Default()
	if o.Encapsulation != nil {
		base.Encapsulation = *o.Encapsulation
	}
	_, err = base.With(o)
	return err
}
