// SPDX-License-Identifier: Apache-2.0

package netconf

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"

	"coelan.io/coelan/internal/cni/wire"
)

// ForeignBridge is a bridge that an external controller owns, as a configuration names it.
type ForeignBridge struct {
	Name string
	// Controller and Manager are targets of Open vSwitch, such as tcp:192.0.2.1:6653 or
	// ptcp:6640:127.0.0.1 (ovs-vsctl(8)). No Manager: "".
	Controller, Manager string
	// Uplink is an interface of the node that is to be a port of the bridge; "": none is.
	Uplink string
	// ClusterID is the first part of iface-id.
	ClusterID string
}

// What COE's plugin takes if a configuration does not say.
const (
	managerPort    = 6640
	controllerPort = 6653
	clusterID      = "00000000-0000-0000-0000-000000000001"
)

// loopback is where Open vSwitch listens if the configuration does not say: a listener on all
// addresses lets everything that reaches the node rewrite its flows.
const loopback = "127.0.0.1"

// ownerValues are the values of ownerKeys, nil for those that are not given.
type ownerValues struct {
	Manager    *string `json:"manager"`
	MgrPort    *uint16 `json:"mgrPort"`
	MgrActive  *bool   `json:"mgrActive"`
	Controller *string `json:"controller"`
	CtlrPort   *uint16 `json:"ctlrPort"`
	CtlrActive *bool   `json:"ctlrActive"`
	Uplink     *string `json:"externalIntf"`
	ClusterID  *string `json:"clusterId"`
}

// readOwner reads what is flat in a configuration or in ovsConfig. The error says what is there
// twice with different values; the flat ones count then.
func readOwner(given map[string]json.RawMessage) (o ownerValues, err error) {
	var in struct {
		ownerValues
		OVSConfig ownerValues `json:"ovsConfig"`
	}
	text, err := json.Marshal(given)
	if err == nil {
		err = json.Unmarshal(text, &in)
	}
	if err != nil {
		return o, newError(wire.CodeInvalidConfig, "network configuration", err.Error())
	}
	o = in.ownerValues
	for _, e := range []error{
		merge("manager", &o.Manager, in.OVSConfig.Manager), merge("mgrPort", &o.MgrPort, in.OVSConfig.MgrPort),
		merge("mgrActive", &o.MgrActive, in.OVSConfig.MgrActive),
		merge("controller", &o.Controller, in.OVSConfig.Controller),
		merge("ctlrPort", &o.CtlrPort, in.OVSConfig.CtlrPort),
		merge("ctlrActive", &o.CtlrActive, in.OVSConfig.CtlrActive),
		merge("externalIntf", &o.Uplink, in.OVSConfig.Uplink),
		merge("clusterId", &o.ClusterID, in.OVSConfig.ClusterID),
	} {
		if err == nil {
			err = e
		}
	}
	return o, err
}

func merge[T comparable](key string, flat **T, nested *T) error {
	switch {
	case nested == nil:
	case *flat == nil:
		*flat = nested
	case **flat != *nested:
		return newError(wire.CodeInvalidConfig, fmt.Sprintf("%s and ovsConfig.%s in the network configuration differ",
			key, key), fmt.Sprintf("%v and %v: keep the one that is meant", **flat, *nested))
	}
	return nil
}

// isForeign says whether a configuration is for a bridge that an external controller owns: it names
// a controller, and a bridge that is not the agent's.
func isForeign(given map[string]json.RawMessage, agentBridge string) bool {
	var c Config
	o, _ := readOwner(given) // what is wrong with it is said by readForeign
	return c.readNested(given) == nil && c.Bridge != "" && c.Bridge != agentBridge &&
		(value(o.Controller) != "" || o.CtlrPort != nil || value(o.CtlrActive))
}

// readForeign reads what a configuration says of a bridge that an external controller owns.
func (c *Config) readForeign(given map[string]json.RawMessage) error {
	o, err := readOwner(given)
	if err != nil {
		return err
	}
	f := ForeignBridge{Name: c.Bridge, Uplink: value(o.Uplink), ClusterID: clusterID}
	if o.ClusterID != nil {
		f.ClusterID = *o.ClusterID
	}
	if err := f.checkNames(); err != nil {
		return err
	}
	controller := endpoint{
		"controller", value(o.Controller), "ctlrPort", o.CtlrPort, "ctlrActive", value(o.CtlrActive),
	}
	if f.Controller, err = controller.target(controllerPort); err != nil {
		return err
	}
	if value(o.Manager) != "" || o.MgrPort != nil || value(o.MgrActive) {
		manager := endpoint{"manager", value(o.Manager), "mgrPort", o.MgrPort, "mgrActive", value(o.MgrActive)}
		if f.Manager, err = manager.target(managerPort); err != nil {
			return err
		}
	}
	if f.Manager == f.Controller {
		return newError(wire.CodeInvalidConfig, fmt.Sprintf(
			"controller and manager in the network configuration are both %s", f.Manager), "give them different ports")
	}
	if !c.IPAM.Delegated() {
		return newError(wire.CodeInvalidConfig, "network configuration lacks the key ipam",
			"on the bridge of an external controller the agent has no addresses: use host-local, static or another IPAM plugin")
	}
	c.Foreign = &f
	return nil
}

var (
	deviceName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}$`)
	identity   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)
)

const noDeviceName = "it is not the name of a network device: at most 15 letters, digits, '.', '_' and '-'"

func (f ForeignBridge) checkNames() error {
	switch {
	case !deviceName.MatchString(f.Name):
		return wrongValue("ovsBridge", strconv.Quote(f.Name), noDeviceName)
	case f.Uplink != "" && !deviceName.MatchString(f.Uplink):
		return wrongValue("externalIntf", strconv.Quote(f.Uplink), noDeviceName)
	case f.Uplink == f.Name:
		return wrongValue("externalIntf", strconv.Quote(f.Uplink),
			"it is the bridge itself: name the network card that is to be its port")
	case !identity.MatchString(f.ClusterID):
		return wrongValue("clusterId", strconv.Quote(f.ClusterID),
			"it is not an identity: letters, digits, '.', '_' and '-', such as a UUID")
	}
	return nil
}

func wrongValue(key, value, why string) error {
	return newError(wire.CodeInvalidConfig, key+" in the network configuration has the value "+value, why)
}

// endpoint is a controller or a manager: its keys and their values.
type endpoint struct {
	key, address string
	portKey      string
	port         *uint16
	activeKey    string
	active       bool
}

// target is what Open vSwitch connects to, or where it listens.
func (e endpoint) target(port uint16) (string, error) {
	if e.port != nil {
		port = *e.port
	}
	if port == 0 {
		return "", wrongValue(e.portKey, "0", "it is not between 1 and 65535")
	}
	text := e.address
	switch {
	case text == "" && e.active:
		return "", wrongValue(e.activeKey, "true",
			fmt.Sprintf("the key %s is missing: the address to connect to", e.key))
	case text == "":
		text = loopback
	}
	address, err := netip.ParseAddr(text)
	switch address = address.Unmap(); {
	case err != nil || address.Zone() != "":
		return "", wrongValue(e.key, strconv.Quote(text), "it is not an IP address")
	case address.IsMulticast(), e.active && address.IsUnspecified():
		return "", wrongValue(e.key, strconv.Quote(text), "it is not the address of one machine")
	case e.active:
		return "tcp:" + netip.AddrPortFrom(address, port).String(), nil
	case address.Is6():
		return fmt.Sprintf("ptcp:%d:[%s]", port, address), nil
	default:
		return fmt.Sprintf("ptcp:%d:%s", port, address), nil
	}
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// What keys mean on the bridge of an external controller.
const (
	noNetwork    = "on the bridge of an external controller there are no Coelan Networks: remove it, or the controller"
	noMasquerade = "on the bridge of an external controller Coelan does not masquerade: remove it, or the controller"
	elsewhereSet = "it is up to the external controller"
)

var (
	foreignBridge = used[string]("the bridge of the external controller: it is made if it is not there")
	// foreignOwnerKeys are ownerKeys there.
	foreignOwnerKeys = map[string]key{
		"manager":    used[string]("the OVSDB manager's address, or with mgrActive false this node's where Open vSwitch waits for it (127.0.0.1)"),
		"mgrPort":    used[uint16]("the OVSDB manager's port (6640)"),
		"mgrActive":  used[bool]("true: Open vSwitch connects to the manager; false: it waits for it"),
		"controller": used[string]("the controller's address, or with ctlrActive false this node's where the bridge waits for it (127.0.0.1)"),
		"ctlrPort":   used[uint16]("the controller's port (6653)"),
		"ctlrActive": used[bool]("true: the bridge connects to the controller; false: it waits for it"),
		"ovsBridge":  foreignBridge,
		"externalIntf": used[string](
			"the interface is made a port of the bridge; one that has addresses, or a default route, is refused"),
		"externalIp": ignored[string]("no plugin has ever used it, COE's neither"),
		"clusterId":  used[string]("iface-id of a pod's port is clusterId:pod"),
	}
	foreignKeys = with(keys, foreignOwnerKeys, map[string]key{
		"network": refused[string](noNetwork), "nfn-network": refused[string](noNetwork),
		"ipam":   {typed: typed[map[string]any], judge: judgeForeignIPAM},
		"bridge": foreignBridge,
		"ovsConfig": {typed: typed[map[string]any], within: with(foreignOwnerKeys, map[string]key{
			"isMaster": keys["ovsConfig"].within["isMaster"],
		})},
		"ovs": {typed: typed[map[string]any], within: map[string]key{
			"bridge": foreignBridge, "vxlan": {typed: typedVNI, state: Refused, meaning: noNetwork},
		}},
		"isDefaultGateway": used[bool]("true: the default route is through the gateway that ipam gives"),
		"forceAddress":     ignored[bool](elsewhereSet), "hairpinMode": ignored[bool](elsewhereSet),
		"ipMasq": {typed: typed[bool], judge: ifTrue(Refused, noMasquerade, elsewhereSet)},
	})
)

func refused[T any](meaning string) key {
	return key{typed: typed[T], state: Refused, meaning: meaning}
}

// keysFor is the table for a configuration.
func keysFor(given map[string]json.RawMessage, agentBridge string) map[string]key {
	if isForeign(given, agentBridge) {
		return foreignKeys
	}
	return keys
}

// judgeForeignIPAM is judgeIPAM on the bridge of an external controller.
func judgeForeignIPAM(value json.RawMessage) (State, string) {
	state, meaning := judgeIPAM(value)
	var i IPAM
	if err := json.Unmarshal(value, &i); err != nil {
		return Refused, err.Error()
	}
	switch {
	case i.Type == wire.IPAMPlugin, state == Used && !i.Delegated():
		return Refused, "the agent's addresses lead to its own bridge, not to that of an external controller: use host-local or another IPAM plugin"
	case state == Used:
		return Used, "the plugin " + i.Type + " is called: its addresses, gateways and routes are the pod's"
	}
	return state, meaning
}
