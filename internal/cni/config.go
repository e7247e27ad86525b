// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"fmt"

	"coelan.io/coelan/internal/cni/netconf"
	"coelan.io/coelan/internal/cni/wire"
)

// parseConfig reads a configuration, see netconf.Read. Warnings are about keys that do not do
// what they say.
func (s *Server) parseConfig(data []byte, strict bool) (conf netconf.Config, warnings []string, err error) {
	conf, findings, err := netconf.Read(data, s.opts.Bridge, strict)
	if err != nil {
		return conf, nil, err
	}
	for _, f := range findings {
		switch {
		case f.State != netconf.Ignored:
		case f.Key == "":
			warnings = append(warnings, fmt.Sprintf("%s; what is meant is %s", f.Meaning, f.Value))
		default:
			warnings = append(warnings, fmt.Sprintf("%s is ignored: %s", f.Key, f.Meaning))
		}
	}
	if conf.Beside != "" && s.opts.OneBridge && strict {
		return conf, warnings, newError(wire.CodeInvalidConfig,
			fmt.Sprintf("ovsBridge in the network configuration has the value %q", conf.Beside),
			fmt.Sprintf("with OVN, pods' interfaces are ports of its bridge %s: name that one, or none", s.opts.Bridge))
	}
	if conf.Masquerade && s.opts.KeepsAddresses && strict {
		return conf, warnings, newError(wire.CodeInvalidConfig, "ipMasq in the network configuration has the value true",
			"the agent's snat.enabled is false: pods have their own addresses outside")
	}
	return conf, warnings, nil
}

func shorten(value json.RawMessage) string {
	const limit = 100
	if len(value) > limit {
		return string(value[:limit]) + "…"
	}
	return string(value)
}
