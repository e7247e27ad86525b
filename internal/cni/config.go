// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/utils"

	"coelan.io/coelan/internal/cni/wire"
)

// netConf is the configuration of one network, from standard input of the plugin.
type netConf struct {
	CNIVersion string    `json:"cniVersion"`
	Name       string    `json:"name"`
	DNS        types.DNS `json:"dns"`
	// PrevResult is what an earlier plugin, or an earlier ADD, returned.
	PrevResult map[string]any `json:"prevResult"`
	// ValidAttachments is what GC must keep.
	ValidAttachments []types.GCAttachment `json:"cni.dev/valid-attachments"`
	validGiven       bool

	// Network names a Coelan Network: the configuration is that of a NetworkAttachmentDefinition.
	// NFNNetwork is the same of OVN4NFV.
	Network    string `json:"network"`
	NFNNetwork string `json:"nfn-network"`
	// RuntimeConfig and Args may ask for addresses and a MAC.
	RuntimeConfig json.RawMessage `json:"runtimeConfig"`
	Args          json.RawMessage `json:"args"`

	// Those of odlovs-cni that are compared with what the agent does.
	Bridge string  `json:"ovsBridge"`
	IPAM   netIPAM `json:"ipam"`
}

type netIPAM struct {
	Type    string `json:"type"`
	Subnet  string `json:"subnet"`
	Gateway string `json:"gateway"`
}

// knownKeys are the configuration's keys, with what tells that a value is of the key's
// type.
var knownKeys = map[string]func(json.RawMessage) error{
	"cniVersion": typed[string], "name": typed[string], "type": typed[string], "dns": typed[types.DNS],
	"ipam": typed[map[string]any], "prevResult": typed[map[string]any],
	"capabilities": anything, "runtimeConfig": anything, "args": anything,
	"network": typed[string], "nfn-network": typed[string],
	// Of the plugin itself, which has read them before.
	"socket": typed[string], "timeout": typed[float64],
	// Of odlovs-cni.
	"mgrPort": typed[uint16], "mgrActive": typed[bool], "manager": typed[string], "ovsBridge": typed[string],
	"ctlrPort": typed[uint16], "ctlrActive": typed[bool], "controller": typed[string],
	"externalIntf": typed[string], "externalIp": typed[string], "clusterId": typed[string],
}

func typed[T any](value json.RawMessage) error {
	var v T
	return json.Unmarshal(value, &v)
}

func anything(json.RawMessage) error { return nil }

// ignoredKeys are accepted and do nothing: what they ask for is decided elsewhere.
var ignoredKeys = map[string]string{
	"mgrPort":      "the agent reaches Open vSwitch by its unix sockets and sets no manager",
	"mgrActive":    "the agent reaches Open vSwitch by its unix sockets and sets no manager",
	"manager":      "the agent reaches Open vSwitch by its unix sockets and sets no manager",
	"ctlrPort":     "the agent is the bridge's only controller",
	"ctlrActive":   "the agent is the bridge's only controller",
	"controller":   "the agent is the bridge's only controller",
	"externalIntf": "the uplink is the interface that carries the node's address",
	"externalIp":   "the node's address is that of its Node object",
	"clusterId":    "ports are named by namespace, pod and interface",
}

// parseConfig reads a configuration. Strict refuses keys that are not known: what is
// misspelled should not be silently without effect. DEL and GC are not strict, so that
// nothing that was once added cannot be deleted. Warnings are about keys that do not do
// what they say.
func (s *Server) parseConfig(data []byte, strict bool) (conf netConf, warnings []string, err error) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(data, &keys); err != nil {
		return conf, nil, newError(wire.CodeDecoding, "network configuration is not a JSON object",
			jsonProblem(data, err))
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if err := checkKey(key, keys[key], strict); err != nil {
			return conf, nil, err
		}
		if why, ignored := ignoredKeys[key]; ignored {
			warnings = append(warnings, fmt.Sprintf("%s is ignored: %s", key, why))
		}
	}
	if err := json.Unmarshal(data, &conf); err != nil {
		return conf, nil, newError(wire.CodeInvalidConfig, "network configuration", err.Error())
	}
	_, conf.validGiven = keys["cni.dev/valid-attachments"]
	if conf.Name == "" {
		return conf, nil, newError(wire.CodeInvalidConfig, "network configuration lacks the key name", "")
	}
	if err := utils.ValidateNetworkName(conf.Name); err != nil {
		return conf, nil, newError(wire.CodeInvalidConfig, "name in the network configuration", err.Error())
	}
	if !slices.Contains(wire.Versions, conf.CNIVersion) {
		return conf, nil, newError(wire.CodeIncompatibleVersion,
			fmt.Sprintf("cniVersion %q in the network configuration is not supported", conf.CNIVersion),
			"supported: "+strings.Join(wire.Versions, ", "))
	}
	return conf, append(warnings, s.differences(conf)...), nil
}

// checkKey returns an error if a key is not known or its value is not of its type.
func checkKey(key string, value json.RawMessage, strict bool) error {
	if strings.HasPrefix(key, "cni.dev/") {
		return nil // reserved by the specification for what it adds
	}
	check, known := knownKeys[key]
	switch {
	case !known && strict:
		return newError(wire.CodeUnsupportedField,
			fmt.Sprintf("network configuration has the unknown key %s with the value %s", key, shorten(value)), "")
	case !known:
		return nil
	}
	if err := check(value); err != nil {
		return newError(wire.CodeInvalidConfig,
			fmt.Sprintf("%s in the network configuration has the value %s", key, shorten(value)), err.Error())
	}
	return nil
}

// differences are warnings about keys that ask for something else than the agent does.
func (s *Server) differences(conf netConf) []string {
	var warnings []string
	if conf.Bridge != "" && s.opts.Bridge != "" && conf.Bridge != s.opts.Bridge {
		warnings = append(warnings,
			fmt.Sprintf("ovsBridge %s is ignored: the agent's bridge is %s", conf.Bridge, s.opts.Bridge))
	}
	if conf.IPAM == (netIPAM{}) {
		return warnings
	}
	node, err := s.opts.Node.Node()
	if err != nil {
		return warnings
	}
	for _, cidr := range node.PodCIDRs {
		if conf.IPAM.Type == "host-local" && conf.IPAM.Subnet == cidr.String() &&
			(conf.IPAM.Gateway == "" || conf.IPAM.Gateway == cidr.Addr().Next().String()) {
			return warnings
		}
	}
	return append(warnings, fmt.Sprintf("ipam is ignored: addresses are from the node's podCIDRs %v, the gateway is the first of each",
		node.PodCIDRs))
}

// jsonProblem says where JSON is wrong.
func jsonProblem(data []byte, err error) string {
	if len(bytes.TrimSpace(data)) == 0 {
		return "standard input is empty"
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Sprintf("%v, at byte %d", err, syntax.Offset)
	}
	return err.Error()
}

func shorten(value json.RawMessage) string {
	const limit = 100
	if len(value) > limit {
		return string(value[:limit]) + "…"
	}
	return string(value)
}
