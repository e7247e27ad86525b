// SPDX-License-Identifier: Apache-2.0

package netconf

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/containernetworking/cni/pkg/types"

	"coelan.io/coelan/internal/cni/wire"
)

// State is what becomes of a key.
type State string

// The states of keys. Fixed ones ask for what is always so; Ignored ones have no effect, and
// are a warning; a configuration with a Refused one is an error.
const (
	Used    State = "used"
	Fixed   State = "always so"
	Ignored State = "no effect"
	Refused State = "refused"
)

// key is what is known about a key of the configuration.
type key struct {
	typed   func(json.RawMessage) error
	state   State
	meaning string
	// judge, if set, decides by the value.
	judge func(json.RawMessage) (State, string)
	// within are the keys of an object.
	within map[string]key
}

func typed[T any](value json.RawMessage) error {
	var v T
	return json.Unmarshal(value, &v)
}

func anything(json.RawMessage) error { return nil }

func used[T any](meaning string) key { return key{typed: typed[T], state: Used, meaning: meaning} }

func ignored[T any](meaning string) key {
	return key{typed: typed[T], state: Ignored, meaning: meaning}
}

// The reasons for what has no effect.
const (
	noManager    = "the agent reaches Open vSwitch by its unix sockets and sets no manager"
	noController = "the agent is the bridge's only controller"
	bridgeName   = "the pod's interface is a port of this bridge; one that is not the agent's is made, and a wire of the pod's own leads to the agent's"
)

var (
	bridgeKey = used[string](bridgeName)
	// ownerKeys are flat in configurations of odlovs-cni, and in ovsConfig in those of odlcoe.
	ownerKeys = map[string]key{
		"manager": ignored[string](noManager), "mgrPort": ignored[uint16](noManager),
		"mgrActive":  ignored[bool](noManager),
		"controller": ignored[string](noController), "ctlrPort": ignored[uint16](noController),
		"ctlrActive": ignored[bool](noController), "ovsBridge": bridgeKey,
		"externalIntf": ignored[string]("the uplink is the interface that carries the node's address"),
		"externalIp":   ignored[string]("the node's address is that of its Node object"),
		"clusterId":    ignored[string]("ports are named by namespace, pod and interface"),
	}
)

// keys are those of the configuration.
var keys = with(ownerKeys, map[string]key{
	"cniVersion": used[string]("the version of the CNI specification that results are in"),
	"name":       used[string]("the network's name, by which GC knows what belongs to it"),
	"type":       used[string]("the name of the plugin: coelan-cni, odlovs-cni, odlcoe and ovs-odl are the same one"),
	"dns":        used[types.DNS]("the pod's DNS, if its Network has none"),
	"prevResult": used[map[string]any]("of the CNI specification"),
	"args":       {typed: anything, state: Used, meaning: "in cni: addresses (ips) and the MAC (mac) that are asked for"},
	"capabilities": {typed: anything, state: Used,
		meaning: "what the runtime may put into runtimeConfig: portMappings, ips, mac"},
	"runtimeConfig": {typed: anything, state: Used, meaning: "what the runtime asks for: portMappings, ips, mac"},
	"network":       used[string]("the Coelan Network of the interface"),
	"nfn-network":   used[string]("the Coelan Network of the interface"),
	"socket":        used[string]("the agent's socket"),
	"timeout":       used[float64]("seconds to wait for the agent"),
	"ipam":          {typed: typed[map[string]any], judge: judgeIPAM},

	"ovsConfig": {typed: typed[map[string]any], within: with(ownerKeys, map[string]key{
		"isMaster": {typed: typed[bool], judge: judgeMaster},
	})},
	"bridge": bridgeKey,
	"ovs": {typed: typed[map[string]any], within: map[string]key{
		"bridge": bridgeKey,
		"vxlan":  {typed: typedVNI, state: Used, meaning: "the interface is on the Network that has this VNI"},
	}},
	"isDefaultGateway": used[bool]("true: the default route is through the Network's gateway; a pod's first interface always has it"),
	"forceAddress":     {typed: typed[bool], state: Fixed, meaning: "the gateway's address follows the Network whenever that changes"},
	"ipMasq": {typed: typed[bool], judge: ifTrue(Used,
		"outside, pods have the node's address: the agent's snat.enabled has to be true",
		"whether pods have the node's address outside is decided by the agent's snat.enabled")},
	"hairpinMode": {typed: typed[bool], judge: ifTrue(Fixed, "a pod reaches itself by a Service that leads to it",
		"a pod always reaches itself by a Service that leads to it")},
})

func with(lists ...map[string]key) map[string]key {
	all := map[string]key{}
	for _, list := range lists {
		for name, k := range list {
			all[name] = k
		}
	}
	return all
}

// judgeMaster judges whether the node is the one that others depend on, which no node is.
func judgeMaster(value json.RawMessage) (State, string) {
	if string(value) == "true" {
		return Refused, "no node is the master of others: an agent runs on each, and Coelan's controller elects its leader; " +
			"remove the key, or make it false"
	}
	return Fixed, "no node is the master of others: an agent runs on each"
}

// ifTrue judges a bool of which false has no effect.
func ifTrue(state State, meaning, otherwise string) func(json.RawMessage) (State, string) {
	return func(value json.RawMessage) (State, string) {
		if string(value) == "true" {
			return state, meaning
		}
		return Ignored, otherwise
	}
}

// judgeIPAM says where addresses come from.
func judgeIPAM(value json.RawMessage) (State, string) {
	var given map[string]json.RawMessage
	var i IPAM
	if err := errors.Join(json.Unmarshal(value, &given), json.Unmarshal(value, &i)); err != nil {
		return Refused, err.Error()
	}
	switch {
	case len(given) == 0:
		return Used, "addresses are the agent's"
	case i.Type == "":
		return Refused, "it lacks the key type, which names the IPAM plugin; ipam-odl has the agent's addresses"
	case i.Type == wire.IPAMPlugin && len(given) > 1:
		return Refused, "addresses of ipam-odl are the Network's: subnets, ranges, routes and gateways are said there"
	case i.Type == wire.IPAMPlugin:
		return Used, "addresses are the agent's"
	case i.Type == wire.IPAMDHCP:
		return Refused, "the plugin dhcp asks through an interface that works before it has an address, which no interface of Coelan does; use ipam-odl or host-local"
	case !i.Delegated():
		return Refused, fmt.Sprintf("type %q is not the name of an IPAM plugin", i.Type)
	}
	if i.Type == "host-local" {
		if err := checkHostLocal(value); err != nil {
			return Refused, err.Error()
		}
	}
	return Used, "the plugin " + i.Type + " is called, and its addresses have to be in the Network's subnets, free, and not the gateway"
}

// maxVNI is that of VXLAN: 24 bits (RFC 7348, section 5).
const maxVNI = 1<<24 - 1

// typedVNI takes a decimal number, also as a string with leading zeros.
func typedVNI(value json.RawMessage) error {
	_, err := parseVNI(value)
	return err
}

func parseVNI(value json.RawMessage) (uint32, error) {
	var text string
	if err := json.Unmarshal(value, &text); err != nil {
		text = string(value)
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n == 0 || n > maxVNI {
		return 0, fmt.Errorf("not a VNI from 1 to %d", maxVNI)
	}
	return uint32(n), nil
}
