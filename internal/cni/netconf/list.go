// SPDX-License-Identifier: Apache-2.0

package netconf

import (
	"encoding/json"
	"fmt"
	"slices"

	"coelan.io/coelan/internal/cni/wire"
)

// JudgeFile is Judge for a file of the runtime: a configuration, or a list of configurations, of
// which those of other plugins are not judged.
func JudgeFile(data []byte, agentBridge string) (text []byte, findings []Finding, err error) {
	text, corrections, given, err := parsed(data)
	if err != nil {
		return text, nil, err
	}
	plugins, isList := given["plugins"]
	if !isList {
		return Judge(data, agentBridge)
	}
	var list []map[string]json.RawMessage
	if err := json.Unmarshal(plugins, &list); err != nil {
		return text, nil, newError(wire.CodeInvalidConfig, "plugins in the list of network configurations", err.Error())
	}
	findings, known := corrections, 0
	for i, plugin := range list {
		var name string
		if json.Unmarshal(plugin["type"], &name) != nil || !slices.Contains(wire.Types, name) {
			continue
		}
		known++
		for _, f := range judgeAll("", plugin, keysFor(plugin, agentBridge)) {
			f.Key = fmt.Sprintf("plugins[%d].%s", i, f.Key)
			findings = append(findings, f)
		}
		findings = withContradiction(findings, plugin, agentBridge)
	}
	if known == 0 {
		return text, nil, newError(wire.CodeInvalidConfig, "the list of network configurations has none of Coelan's plugin",
			fmt.Sprintf("types: %v", wire.Types))
	}
	return text, withProblem(text, findings, nil, agentBridge), nil
}

// withContradiction adds what two keys of a plugin say differently.
func withContradiction(findings []Finding, plugin map[string]json.RawMessage,
	agentBridge string,
) []Finding {
	if slices.ContainsFunc(findings, func(f Finding) bool { return f.State == Refused }) {
		return findings
	}
	var conf Config
	// Its types were judged.
	_ = json.Unmarshal(plugin["ipam"], &conf.IPAM)
	if err := conf.readAll(plugin, agentBridge); err != nil {
		findings = append(findings, Finding{State: Refused, Meaning: err.Error()})
	}
	return findings
}
