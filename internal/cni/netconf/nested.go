// SPDX-License-Identifier: Apache-2.0

package netconf

import (
	"encoding/json"
	"fmt"

	"coelan.io/coelan/internal/cni/wire"
)

// readNested reads what can be said in several places: the bridge, and the Network.
func (c *Config) readNested(given map[string]json.RawMessage) error {
	var in struct {
		OVSBridge string `json:"ovsBridge"`
		Bridge    string `json:"bridge"`
		OVS       struct {
			Bridge string          `json:"bridge"`
			VXLAN  json.RawMessage `json:"vxlan"`
		} `json:"ovs"`
		OVSConfig struct {
			OVSBridge string `json:"ovsBridge"`
		} `json:"ovsConfig"`
	}
	for name, into := range map[string]any{
		"ovsBridge": &in.OVSBridge, "bridge": &in.Bridge, "ovs": &in.OVS, "ovsConfig": &in.OVSConfig,
	} {
		if value, ok := given[name]; ok {
			if err := json.Unmarshal(value, into); err != nil {
				return newError(wire.CodeInvalidConfig,
					fmt.Sprintf("%s in the network configuration has the value %s", name, shorten(value)), err.Error())
			}
		}
	}
	first := ""
	for _, b := range []struct{ key, name string }{
		{"ovsBridge", in.OVSBridge}, {"bridge", in.Bridge}, {"ovs.bridge", in.OVS.Bridge},
		{"ovsConfig.ovsBridge", in.OVSConfig.OVSBridge},
	} {
		switch {
		case b.name == "" || b.name == c.Bridge:
		case c.Bridge == "":
			c.Bridge, first = b.name, b.key
		default:
			return newError(wire.CodeInvalidConfig, fmt.Sprintf("%s %q and %s %q in the network configuration name different bridges",
				first, c.Bridge, b.key, b.name), "")
		}
	}
	if in.OVS.VXLAN == nil {
		return nil
	}
	vni, err := parseVNI(in.OVS.VXLAN)
	if err != nil {
		return newError(wire.CodeInvalidConfig,
			fmt.Sprintf("ovs.vxlan in the network configuration has the value %s", shorten(in.OVS.VXLAN)), err.Error())
	}
	if c.Network != "" || c.NFNNetwork != "" {
		return newError(wire.CodeInvalidConfig,
			"network and ovs.vxlan in the network configuration both select a Network: keep one of them", "")
	}
	c.VNI = vni
	return nil
}
