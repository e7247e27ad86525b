// SPDX-License-Identifier: Apache-2.0

// Package sandbox runs a real Kubernetes cluster on one machine, without containers around it: each
// node is a set of namespaces with its own containerd, kubelet and Open vSwitch, and with
// kube-proxy unless Coelan takes its place. All are joined by a bridge in a namespace of its own,
// the fabric, which also plays the world outside.
//
// A sandbox is a directory below the state directory. Everything else of it hangs on the first
// processes of its machines and is gone with them, but for their cgroups.
package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	"github.com/vishvananda/netlink"

	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/statefile"
)

// Family says which IP families a cluster has.
type Family string

// The families.
const (
	Dual Family = "dual"
	IPv4 Family = "ipv4"
	IPv6 Family = "ipv6"
)

// CNI says what connects the pods.
type CNI string

// The pod networks: Coelan itself; the reference plugins bridge, host-local and portmap with static
// routes between the nodes, as a reference; or none, to bring one's own.
const (
	Coelan   CNI = "coelan"
	Bridge   CNI = "bridge"
	NoCNI    CNI = "none"
	auto         = "auto"
	system       = "system"
	userland     = "netdev"
)

// Services says what balances Services.
type Services string

// Either Coelan's agents do, and there is no kube-proxy; or kube-proxy does, on every node.
const (
	NativeServices    Services = "native"
	KubeProxyServices Services = "kube-proxy"
)

// defaultServices is what a sandbox with Coelan has unless said otherwise: what its agents do
// unless told otherwise.
var defaultServices = Services(config.DefaultServiceMode)

// ProxyMode says by what kube-proxy balances.
type ProxyMode string

// The modes.
const (
	ProxyIPTables ProxyMode = "iptables"
	ProxyNFTables ProxyMode = "nftables"
)

// Spec is what a sandbox should be. The zero value of a field is what the sandbox has if it is
// there, else the default.
type Spec struct {
	// Name tells sandboxes apart: at most 20 lower case letters, digits and dashes; "coelan".
	Name string
	// ControlPlanes is the number of nodes with an etcd member, an API server, a controller manager
	// and a scheduler: 1 or 3; 1.
	ControlPlanes int
	// Workers is the number of nodes besides the control plane's; 2.
	Workers int
	// VMs is the number of further nodes that are machines of OpenStack on the workers, which need
	// the backend neutron; 0.
	VMs int
	// Family is dual unless said otherwise.
	Family Family
	// CNI is Coelan unless said otherwise.
	CNI CNI
	// Backend of Coelan is each node's Open vSwitch alone, unless said otherwise.
	Backend Backend
	// Datapath of Open vSwitch: "system" (the kernel's), "netdev" (userspace) or "auto", which
	// takes the kernel's if it has one.
	Datapath string
	// Services are balanced by Coelan or by kube-proxy; with another pod network than Coelan, by
	// kube-proxy unless it is the pod network's own affair (the CNI none).
	Services Services
	// ProxyMode is kube-proxy's, if there is one; iptables.
	ProxyMode ProxyMode
	// Zones is how many zones the nodes are spread over, by their labels; 0: they
	// have no such label.
	Zones int
}

// DefaultName is the sandbox that is meant when none is named.
const DefaultName = "coelan"

const (
	maxWorkers       = 80
	maxControlPlanes = 3
	maxVMs           = 10
)

var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,18}[a-z0-9])?$`)

// complete fills in the defaults and checks the rest.
func (s Spec) complete() (Spec, error) {
	setDefault(&s.Name, DefaultName)
	setDefault(&s.Family, Dual)
	setDefault(&s.CNI, Coelan)
	setDefault(&s.Backend, OVSBackend)
	setDefault(&s.Datapath, auto)
	setDefault(&s.ProxyMode, ProxyIPTables)
	if s.CNI == Coelan {
		setDefault(&s.Services, defaultServices)
	}
	setDefault(&s.Services, KubeProxyServices)
	if s.Workers == 0 {
		s.Workers = 2
	}
	if s.ControlPlanes == 0 {
		s.ControlPlanes = 1
	}
	var errs []error
	if s.ControlPlanes != 1 && s.ControlPlanes != maxControlPlanes {
		errs = append(errs, fmt.Errorf("control planes %d: want 1 or %d", s.ControlPlanes, maxControlPlanes))
	}
	if !validName.MatchString(s.Name) {
		errs = append(errs, fmt.Errorf("name %q: want 1 to 20 lower case letters, digits and inner dashes", s.Name))
	}
	if s.Workers < 1 || s.Workers > maxWorkers {
		errs = append(errs, fmt.Errorf("workers %d: want 1 to %d", s.Workers, maxWorkers))
	}
	switch s.Family {
	case Dual, IPv4, IPv6:
	default:
		errs = append(errs, fmt.Errorf("IP family %q: want dual, ipv4 or ipv6", s.Family))
	}
	switch s.CNI {
	case Coelan, Bridge, NoCNI:
	default:
		errs = append(errs, fmt.Errorf("CNI %q: want coelan, bridge or none", s.CNI))
	}
	switch s.Backend {
	case OVSBackend:
	case OVNBackend, NeutronBackend:
		if s.CNI != Coelan {
			errs = append(errs, fmt.Errorf("backend %s: the CNI %s has no use for it; take the CNI coelan", s.Backend, s.CNI))
		} else if s.Services == KubeProxyServices {
			errs = append(errs, fmt.Errorf("backend %s: kube-proxy cannot balance the Services of OVN's pods; take services native",
				s.Backend))
		}
	default:
		errs = append(errs, fmt.Errorf("backend %q: want ovs, ovn or neutron", s.Backend))
	}
	switch s.Services {
	case KubeProxyServices:
	case NativeServices:
		if s.CNI == Bridge {
			errs = append(errs, fmt.Errorf("services native: the CNI %s has none of its own; "+
				"take kube-proxy, or the CNI coelan", s.CNI))
		}
	default:
		errs = append(errs, fmt.Errorf("services %q: want native or kube-proxy", s.Services))
	}
	switch s.ProxyMode {
	case ProxyIPTables, ProxyNFTables:
	default:
		errs = append(errs, fmt.Errorf("kube-proxy mode %q: want iptables or nftables", s.ProxyMode))
	}
	if s.Zones < 0 || s.Zones > maxWorkers {
		errs = append(errs, fmt.Errorf("zones %d: want 0 to %d", s.Zones, maxWorkers))
	}
	switch s.Datapath {
	case auto, system, userland:
	default:
		errs = append(errs, fmt.Errorf("datapath %q: want auto, netdev or system", s.Datapath))
	}
	if s.Datapath == auto {
		s.Datapath = userland
		if kernelDatapath() {
			s.Datapath = system
		}
	}
	return s, errors.Join(append(errs, s.checkVMs())...)
}

// checkVMs returns an error if there cannot be so many machines of OpenStack, or none at all.
func (s Spec) checkVMs() error {
	switch {
	case s.VMs < 0 || s.VMs > maxVMs:
		return fmt.Errorf("vms %d: want 0 to %d", s.VMs, maxVMs)
	case s.VMs > 0 && s.Backend != NeutronBackend:
		return fmt.Errorf("vms %d: without OpenStack's Neutron there are no machines of OpenStack; take the backend neutron",
			s.VMs)
	case s.VMs > 0 && s.Datapath != userland:
		return fmt.Errorf("vms %d: with the datapath %s workers have no bridge that leads to the other nodes; take the datapath %s",
			s.VMs, s.Datapath, userland)
	}
	return nil
}

// Balancer is what balances Services, in words.
func (s Spec) Balancer() string {
	if s.Services == NativeServices {
		return "Coelan"
	}
	return fmt.Sprintf("kube-proxy (%s)", s.ProxyMode)
}

func setDefault[T ~string](field *T, value T) {
	if *field == "" {
		*field = value
	}
}

// kernelDatapath reports whether the kernel has Open vSwitch, loading its module if it is one.
func kernelDatapath() bool {
	_ = exec.Command("modprobe", "-q", "openvswitch").Run()
	_, err := netlink.GenlFamilyGet("ovs_datapath")
	return err == nil
}

const specFile = "spec.json"

// StateDir is where sandboxes are: $COELAN_SANDBOX_DIR or /var/lib/coelan-sandbox.
func StateDir() string {
	if d := os.Getenv("COELAN_SANDBOX_DIR"); d != "" {
		return d
	}
	return "/var/lib/coelan-sandbox"
}

func readSpec(dir string) (Spec, error) {
	var s Spec
	data, err := os.ReadFile(filepath.Join(dir, specFile))
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("%s: %w", filepath.Join(dir, specFile), err)
	}
	return s, nil
}

func (s Spec) write(dir string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return statefile.WriteBytes(filepath.Join(dir, specFile), 0o644, data)
}

// merge is the spec that the sandbox in dir gets when want is asked for. One that exists may get
// more workers and VMs, zones and another way of balancing Services; nothing else of it changes.
func merge(dir string, want Spec) (Spec, error) {
	have, err := readSpec(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return want.complete()
	}
	if err != nil {
		return have, err
	}
	setDefault(&want.Family, have.Family)
	setDefault(&want.CNI, have.CNI)
	setDefault(&have.Backend, OVSBackend) // one of an older release names none
	setDefault(&want.Backend, have.Backend)
	setDefault(&want.Datapath, have.Datapath)
	setDefault(&want.Services, have.Services)
	setDefault(&want.ProxyMode, have.ProxyMode)
	if want.Zones == 0 {
		want.Zones = have.Zones
	}
	if want.Datapath == auto {
		want.Datapath = have.Datapath
	}
	if want.Workers == 0 {
		want.Workers = have.Workers
	}
	if want.VMs == 0 {
		want.VMs = have.VMs
	}
	// One of an older release has no number of them.
	have.ControlPlanes = max(have.ControlPlanes, 1)
	if want.ControlPlanes == 0 {
		want.ControlPlanes = have.ControlPlanes
	}
	if want, err = want.complete(); err != nil {
		return have, err
	}
	for _, field := range []struct {
		name       string
		have, want any
	}{
		{"control planes", have.ControlPlanes, want.ControlPlanes},
		{"IP family", have.Family, want.Family},
		{"CNI", have.CNI, want.CNI},
		{"backend", have.Backend, want.Backend},
		{"datapath", have.Datapath, want.Datapath},
	} {
		if field.have != field.want {
			return have, fmt.Errorf("sandbox %s exists with %s %v, not %v: take it down first, or use another name",
				want.Name, field.name, field.have, field.want)
		}
	}
	for _, number := range []struct {
		of         string
		have, want int
	}{{"workers", have.Workers, want.Workers}, {"VMs", have.VMs, want.VMs}} {
		if number.want < number.have {
			return have, fmt.Errorf("sandbox %s exists with %d %s: take it down to have fewer", want.Name, number.have, number.of)
		}
	}
	// Machines of OpenStack beyond the first on each worker would move to another.
	if want.Workers != have.Workers && have.VMs > have.Workers {
		return have, fmt.Errorf("sandbox %s exists with %d workers and %d VMs on them: take it down to have more workers",
			want.Name, have.Workers, have.VMs)
	}
	return want, nil
}
