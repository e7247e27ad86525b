// SPDX-License-Identifier: Apache-2.0

// Package netconf reads the network configurations that runtimes give to Coelan's CNI plugin: its
// own, and those of odlovs-cni, odlcoe and ovs-odl as the COE CNI specification prints them. It
// says of each key what it does. It does no I/O and knows nothing of the node.
package netconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/utils"

	"coelan.io/coelan/internal/cni/wire"
)

// firstVersion is what a configuration without cniVersion means: CNI specification 0.1.0.
const firstVersion = "0.1.0"

// Config is the configuration of one network.
type Config struct {
	CNIVersion string    `json:"cniVersion"`
	Name       string    `json:"name"`
	Type       string    `json:"type"`
	DNS        types.DNS `json:"dns"`
	// PrevResult is what an earlier plugin, or an earlier ADD, returned.
	PrevResult map[string]any `json:"prevResult"`
	// ValidAttachments is what GC must keep; ValidGiven tells an empty list from a missing one.
	ValidAttachments []types.GCAttachment `json:"cni.dev/valid-attachments"`
	ValidGiven       bool                 `json:"-"`

	// Network names a Coelan Network: the configuration is that of a NetworkAttachmentDefinition.
	// NFNNetwork is the same of OVN4NFV.
	Network    string `json:"network"`
	NFNNetwork string `json:"nfn-network"`
	// RuntimeConfig and Args may ask for addresses and a MAC.
	RuntimeConfig json.RawMessage `json:"runtimeConfig"`
	Args          json.RawMessage `json:"args"`

	IPAM IPAM `json:"ipam"`
	// Bridge is the first of ovsBridge, bridge, ovs.bridge and ovsConfig.ovsBridge that is given.
	Bridge string `json:"-"`
	// Foreign is set if Bridge is not the agent's, and the configuration names a controller.
	Foreign *ForeignBridge `json:"-"`
	// Beside is Bridge if it is not the agent's, and the configuration names no controller: the
	// pod's interface is a port of it. Else it is "".
	Beside string `json:"-"`
	// VNI selects the Network that has it; 0: none does.
	VNI uint32 `json:"-"`
	// DefaultGateway asks for the default route, Masquerade for the node's addresses outside.
	DefaultGateway bool `json:"isDefaultGateway"`
	Masquerade     bool `json:"ipMasq"`
}

// IPAM is what the plugin itself needs to know of the key ipam: the rest is the named plugin's.
type IPAM struct {
	Type string `json:"type"`
}

// Delegated says that another plugin gives the addresses.
func (i IPAM) Delegated() bool { return wire.Delegates(i.Type) }

// Read reads a configuration. Strict refuses keys that are not known: what is misspelled should not
// be silently without effect. DEL and GC are not strict, so that nothing that was once added cannot
// be deleted. The findings are those of Judge. Errors are *wire.Error.
func Read(data []byte, agentBridge string, strict bool) (conf Config, findings []Finding, err error) {
	text, findings, keys, err := judged(data, agentBridge)
	if err != nil {
		return conf, findings, err
	}
	if err := refusal(findings, strict); err != nil {
		return conf, findings, err
	}
	if err := json.Unmarshal(text, &conf); err != nil {
		return conf, findings, newError(wire.CodeInvalidConfig, "network configuration", err.Error())
	}
	return conf, findings, conf.complete(keys, agentBridge, strict)
}

// complete fills in what is not a key's value as it stands, and checks the whole. Unless it is
// strict, contradictions are no error.
func (c *Config) complete(given map[string]json.RawMessage, agentBridge string, strict bool) error {
	c.ValidGiven = given["cni.dev/valid-attachments"] != nil
	if c.CNIVersion == "" {
		c.CNIVersion = firstVersion
	}
	if err := c.readAll(given, agentBridge); err != nil && strict {
		return err
	}
	return c.check()
}

// readAll reads what can be said in several places, and by several keys together.
func (c *Config) readAll(given map[string]json.RawMessage, agentBridge string) error {
	if err := c.readNested(given); err != nil {
		return err
	}
	switch {
	case isForeign(given, agentBridge):
		return c.readForeign(given)
	case c.Bridge == "" || agentBridge == "" || c.Bridge == agentBridge:
		return nil
	case !deviceName.MatchString(c.Bridge):
		return wrongValue("ovsBridge", strconv.Quote(c.Bridge), noDeviceName)
	}
	c.Beside = c.Bridge
	return nil
}

// check returns an error if what every configuration needs is missing.
func (c Config) check() error {
	if c.Name == "" {
		return newError(wire.CodeInvalidConfig, "network configuration lacks the key name", "")
	}
	if err := utils.ValidateNetworkName(c.Name); err != nil {
		return newError(wire.CodeInvalidConfig, "name in the network configuration", err.Error())
	}
	if !slices.Contains(wire.Versions, c.CNIVersion) {
		return newError(wire.CodeIncompatibleVersion,
			fmt.Sprintf("cniVersion %q in the network configuration is not supported", c.CNIVersion),
			"supported: "+strings.Join(wire.Versions, ", "))
	}
	return nil
}

// refusal is the error of the first key that is refused. If strict is false, only a value of
// another type is.
func refusal(findings []Finding, strict bool) error {
	for _, f := range findings {
		switch {
		case f.State != Refused:
		case f.unknown && strict:
			return newError(wire.CodeUnsupportedField,
				fmt.Sprintf("network configuration has the unknown key %s with the value %s", f.Key, f.Value), f.more())
		case !f.unknown && (strict || f.mistyped):
			return newError(wire.CodeInvalidConfig,
				fmt.Sprintf("%s in the network configuration has the value %s", f.Key, f.Value), f.Meaning)
		}
	}
	return nil
}

func (f Finding) more() string {
	if f.Meaning == unknownKey {
		return ""
	}
	return f.Meaning
}

func newError(code uint, msg, details string) *wire.Error {
	return &wire.Error{CNIVersion: wire.LatestVersion, Code: code, Msg: msg, Details: details}
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
		return strings.ToValidUTF8(string(value[:limit]), "") + "…"
	}
	return string(value)
}
