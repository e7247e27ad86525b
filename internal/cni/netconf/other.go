// SPDX-License-Identifier: Apache-2.0

package netconf

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/containernetworking/cni/pkg/types"

	"coelan.io/coelan/internal/cni/wire"
)

// leaseKeys are those of ipam in a configuration of another plugin.
var leaseKeys = map[string]key{
	"type":    used[string]("the agent gives addresses of the node's podCIDRs"),
	"socket":  used[string]("the agent's socket"),
	"timeout": used[float64]("seconds to wait for the agent"),
}

// ReadOther reads a configuration of another plugin that has ipam-odl for its IPAM plugin. Of its
// keys only those of the CNI specification are read, and ipam. Errors are *wire.Error.
func ReadOther(data []byte, strict bool) (Config, error) {
	text, _, given, err := parsed(data)
	if err != nil {
		return Config{}, err
	}
	var in struct {
		CNIVersion       string                     `json:"cniVersion"`
		Name             string                     `json:"name"`
		PrevResult       map[string]any             `json:"prevResult"`
		ValidAttachments []types.GCAttachment       `json:"cni.dev/valid-attachments"`
		RuntimeConfig    json.RawMessage            `json:"runtimeConfig"`
		Args             json.RawMessage            `json:"args"`
		IPAM             map[string]json.RawMessage `json:"ipam"`
	}
	if err := json.Unmarshal(text, &in); err != nil {
		return Config{}, newError(wire.CodeInvalidConfig, "network configuration", err.Error())
	}
	if strict {
		for _, name := range slices.Sorted(maps.Keys(in.IPAM)) {
			if f := judgeOne("ipam."+name, name, in.IPAM[name], leaseKeys)[0]; f.State == Refused {
				return Config{}, newError(wire.CodeInvalidConfig,
					fmt.Sprintf("%s in the network configuration has the value %s", f.Key, f.Value),
					"ipam-odl gives addresses of the node's podCIDRs, and takes type, socket and timeout only: "+f.Meaning)
			}
		}
	}
	conf := Config{
		CNIVersion: in.CNIVersion, Name: in.Name, PrevResult: in.PrevResult, ValidAttachments: in.ValidAttachments,
		RuntimeConfig: in.RuntimeConfig, Args: in.Args,
	}
	const valid = "cni.dev/valid-attachments"
	err = conf.complete(map[string]json.RawMessage{valid: given[valid]}, "", strict)
	return conf, err
}
