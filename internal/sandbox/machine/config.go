// SPDX-License-Identifier: Apache-2.0

// Package machine runs one machine of a sandbox: a set of namespaces (network, mount, PID, UTS,
// IPC, cgroup) with this program as their first process. That process mounts the machine's own
// disk, reaps orphans and starts the manager, which sets up the network and supervises the
// machine's components. Killing the first process kills every process of the machine at once, as a
// power cut does; only the disk stays.
package machine

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"coelan.io/coelan/internal/statefile"
)

// Config is all that a machine needs to boot. It is kept as JSON on the machine's disk.
type Config struct {
	// Name is the host name and, at the other end of the machine's wire, the name of that
	// (at most 15 characters).
	Name string
	// Cgroup is the machine's cgroup below the root of every hierarchy.
	Cgroup string
	// Fabric is set for the machine that joins the others; Uplink for all others.
	Fabric *Fabric `json:",omitempty"`
	Uplink *Uplink `json:",omitempty"`
	// Rules are nftables commands for `nft -f`, applied at boot.
	Rules string `json:",omitempty"`
	// Components are started together; each waits for those that it names in After.
	Components []Component
}

// Fabric is the network outside the nodes: one bridge that is the nodes' wire
// and their default gateway.
type Fabric struct {
	// Addresses are the bridge's own.
	Addresses []netip.Prefix
	// Outside are addresses beyond the gateway, for tests of traffic that leaves the cluster.
	Outside []netip.Addr
	// Servers are where connections to the inherited listener go: the API servers.
	Servers []netip.AddrPort
	// Balancers are addresses of the bridge at which connections to the API
	// servers are accepted, too.
	Balancers []netip.AddrPort `json:",omitempty"`
}

// Uplink is a node's wire and the host network on it.
type Uplink struct {
	// MAC of eth1 and of the bridge; the same at each boot, so that neighbors need not relearn it.
	MAC HardwareAddr
	// Addresses are the node's, with the prefix length of the fabric.
	Addresses []netip.Prefix
	// Gateways are the next hops of the default routes, one of each family.
	Gateways []netip.Addr
	// Bridge is the Open vSwitch bridge that carries the uplink and the addresses, as the userspace
	// datapath needs for tunnels. Empty leaves them on eth1.
	Bridge string `json:",omitempty"`
	// Tunnels has the switch with Bridge know the way to the network of the first address. One that
	// does not read the kernel's routes needs that for tunnels.
	Tunnels bool `json:",omitempty"`
	// Virtual has the wire end on another machine, by an interface that is named after this one,
	// and not on the fabric.
	Virtual bool `json:",omitempty"`
	// Routes are added to the default ones.
	Routes []Route `json:",omitempty"`
}

// Route is a static route of a node over its uplink.
type Route struct {
	To  netip.Prefix
	Via netip.Addr
}

// HardwareAddr is a net.HardwareAddr that is text in JSON.
type HardwareAddr net.HardwareAddr

func (h HardwareAddr) String() string               { return net.HardwareAddr(h).String() }
func (h HardwareAddr) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText parses the colon form.
func (h *HardwareAddr) UnmarshalText(text []byte) error {
	mac, err := net.ParseMAC(string(text))
	*h = HardwareAddr(mac)
	return err
}

// Component is a program that the machine keeps running.
type Component struct {
	Name    string
	Command []string
	// Env is added to the manager's environment.
	Env []string `json:",omitempty"`
	// Before are commands that run in order before each start.
	Before [][]string `json:",omitempty"`
	// After names components that must be ready first.
	After []string `json:",omitempty"`
	// Reach is an address (host:port) that should accept connections first; the start
	// goes ahead after reachTimeout.
	Reach string `json:",omitempty"`
	// Ready tells when the component serves.
	Ready Probe
	// Off keeps the component from starting with the machine. Until it is started, the machine's
	// state leaves it out.
	Off bool `json:",omitempty"`
	// Group ends the processes of its process group with it, as systemd does: those that it has
	// started.
	Group bool `json:",omitempty"`
	// Uplink makes the machine's uplink anew after each start: the component is the
	// switch that carries it.
	Uplink bool `json:",omitempty"`
}

// Probe is satisfied when its one set field answers; the zero Probe always is.
type Probe struct {
	// Socket is a unix socket's path, in which %d is the process id.
	Socket string `json:",omitempty"`
	// URL answers GET with status 200.
	URL string `json:",omitempty"`
	// Files are paths of files that are all there.
	Files []string `json:",omitempty"`
}

// Files of a machine's directory. The directories of disk are mounted over those of
// the root file system.
const (
	configFile = "etc/coelan-sandbox/machine.json"
	socketFile = "control.sock"
	pidFile    = "pid"
	kernelDir  = "kernel"
)

var disk = []string{"etc", "opt", "var/lib", "var/log"}

// Log is the path of a component's log in the machine directory dir. The machine's own
// is that of "machine".
func Log(dir, component string) string {
	return filepath.Join(dir, "var/log", component+".log")
}

// Write puts the configuration on the disk in dir, for the next boot.
func (c Config) Write(dir string) error {
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	for _, d := range append([]string{filepath.Dir(configFile), kernelDir}, disk...) {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	return statefile.WriteBytes(filepath.Join(dir, configFile), 0o644, data)
}

// Read returns the configuration on the disk in dir; "/" inside the machine.
func Read(dir string) (Config, error) {
	var c Config
	data, err := os.ReadFile(filepath.Join(dir, configFile))
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("%s: %w", configFile, err)
	}
	return c, nil
}

// State of a component.
type State string

// The states, in the order of a start.
const (
	Stopped  State = "stopped"  // not wanted
	Waiting  State = "waiting"  // for another component, or to be started again
	Starting State = "starting" // runs, does not answer yet
	Ready    State = "ready"
)

// Status is a component's state. PID is that of the machine's PID namespace.
type Status struct {
	Name     string
	State    State
	PID      int       `json:",omitempty"`
	Since    time.Time // of the state
	Restarts int       // starts after an unexpected exit
	Error    string    `json:",omitempty"` // why it last failed
}
