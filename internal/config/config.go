// SPDX-License-Identifier: Apache-2.0

// Package config reads the agent's configuration file: YAML in which an unknown field, a repeated
// field or a value out of range is an error that names the field.
package config

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"coelan.io/coelan/internal/metricsaccess"
)

// Datapath says which Open vSwitch datapath the integration bridge uses.
type Datapath string

// The datapaths. DatapathAuto takes the kernel's where it exists, else the userspace one.
const (
	DatapathAuto   Datapath = "auto"
	DatapathSystem Datapath = "system"
	DatapathNetdev Datapath = "netdev"
)

// Encapsulation says how packets travel between nodes.
type Encapsulation string

// The encapsulations. NoEncap routes between node addresses and needs all nodes in one L2 segment.
const (
	VXLAN   Encapsulation = "vxlan"
	Geneve  Encapsulation = "geneve"
	NoEncap Encapsulation = "noEncap"
)

// Mapping says which Network the pods of a namespace are on if no Network selects the namespace.
type Mapping string

// The mappings, the same for all agents and for the controller.
const (
	// MapFlat puts all pods on the Network default.
	MapFlat Mapping = "flat"
	// MapNamespace gives every namespace a Router, and a Network on every node with pods of it.
	MapNamespace Mapping = "namespace"
)

// String implements flag.Value.
func (m Mapping) String() string { return string(m) }

// Set implements flag.Value. It takes the known ones only.
func (m *Mapping) Set(text string) error {
	switch got := Mapping(text); got {
	case MapFlat, MapNamespace:
		*m = got
		return nil
	}
	return fmt.Errorf("is %q, not %s or %s", text, MapFlat, MapNamespace)
}

// Type names such a flag's values in the usage.
func (Mapping) Type() string { return "mapping" }

// Config is the whole configuration of one agent. Default gives every field's value when the file
// leaves it out.
type Config struct {
	// Backend brings about what Coelan's objects ask for.
	Backend Backend `json:"backend"`
	// Datapath of the integration bridge.
	Datapath Datapath `json:"datapath"`
	// Encapsulation between nodes. OVN always has Geneve.
	Encapsulation Encapsulation `json:"encapsulation"`
	// MTU of the pods' interfaces in bytes; 0 derives it from the interface that
	// carries the node's address.
	MTU int `json:"mtu"`
	// Bridge is the integration bridge's name.
	Bridge string `json:"bridge"`
	// GatewayInterface is the name of the port between the host and the pods.
	GatewayInterface string `json:"gatewayInterface"`
	// OVSRunDir is where Open vSwitch keeps its sockets.
	OVSRunDir string `json:"ovsRunDir"`
	// Mapping of namespaces to Networks.
	Mapping Mapping `json:"mapping"`
	// BridgeMappings gives, by the name of a physical network, the OVS bridge that leads to
	// it on this node.
	BridgeMappings map[string]string `json:"bridgeMappings"`
	// Uplinks gives, by the name of a physical network, the network card that leads to it on this
	// node. The agent makes a bridge for each.
	Uplinks map[string]Uplink `json:"uplinks"`
	// Subnets gives, by the name of a Network, the prefixes that this node takes blocks of
	// addresses from; of a family or Network without any it takes them from anywhere.
	Subnets map[string][]netip.Prefix `json:"subnets"`
	// ServesNetworks says what makes the interfaces that pods request by the annotation of the
	// Network Plumbing Working Group: Coelan or Multus.
	ServesNetworks ServesNetworks `json:"servesNetworks"`
	// SNAT of what pods send out of the cluster.
	SNAT SNAT `json:"snat"`
	// Services says what balances them and where.
	Services Services `json:"services"`
	// LoadBalancer is about the addresses of LoadBalancerPools.
	LoadBalancer LoadBalancer `json:"loadBalancer"`
	// Policy says whether and how policies are enforced.
	Policy Policy `json:"policy"`
	// Conntrack limits the connections of Routers.
	Conntrack Conntrack `json:"conntrack"`
	// Neighbours limits what pods ask about their neighbors.
	Neighbours Neighbours `json:"neighbours"`
	// CNI is the container runtime's side.
	CNI CNI `json:"cni"`
	// MetricsBindAddress serves /healthz, /readyz and /metrics; "0" serves none.
	MetricsBindAddress string `json:"metricsBindAddress"`
	// MetricsAccess says which clients may read /metrics.
	MetricsAccess metricsaccess.Access `json:"metricsAccess"`
	// LogLevel is debug, info, warn or error.
	LogLevel string `json:"logLevel"`
	// StateDir holds the attachments and what else must outlive a restart.
	StateDir string `json:"stateDir"`
	// AgentSocket is the unix socket of the diagnostics.
	AgentSocket string `json:"agentSocket"`
	// SysctlDir is where the kernel's settings are written; in a container
	// /proc/sys itself is read-only.
	SysctlDir string `json:"sysctlDir"`
	// Kubeconfig is the file with the API server's address; empty means the pod's service account.
	Kubeconfig string `json:"kubeconfig"`
	// APIServer says where else the API server's address may be found.
	APIServer APIServer `json:"apiServer"`
}

// APIServer is about the way to the API server before anything is known of it.
type APIServer struct {
	// KubeletKubeconfigs are paths where kubelet's kubeconfig may be. Only the
	// server's address is read.
	KubeletKubeconfigs []string `json:"kubeletKubeconfigs"`
}

func (s APIServer) validate() error {
	errs := make([]error, len(s.KubeletKubeconfigs))
	for i, path := range s.KubeletKubeconfigs {
		errs[i] = absolute(fmt.Sprintf("apiServer.kubeletKubeconfigs[%d]", i), path)
	}
	return errors.Join(errs...)
}

// SNAT configures the masquerading of pods' packets that leave the cluster.
type SNAT struct {
	// Enabled turns masquerading on.
	Enabled bool `json:"enabled"`
	// ExcludeCIDRs are destinations that see the pods' own addresses; one list for both families.
	ExcludeCIDRs []netip.Prefix `json:"excludeCIDRs"`
}

// CNI says where the container runtime looks for plugins and how the plugin reaches the agent.
type CNI struct {
	// BinDir is where the plugin's binary is installed.
	BinDir string `json:"binDir"`
	// ConfDir is where the network's configuration list is installed.
	ConfDir string `json:"confDir"`
	// Socket is the unix socket between plugin and agent.
	Socket string `json:"socket"`
	// Binary is the plugin to install; empty takes coelan-cni beside the agent's own binary.
	Binary string `json:"binary"`
}

// Default is the configuration of an empty file.
func Default() Config {
	return Config{
		Backend:          Backend{Type: OVSBackend},
		Datapath:         DatapathAuto,
		Encapsulation:    VXLAN,
		Bridge:           "br-int",
		GatewayInterface: "coelan-gw0",
		OVSRunDir:        "/run/openvswitch",
		Mapping:          MapFlat,
		ServesNetworks:   ServesAuto,
		SNAT:             SNAT{Enabled: true},
		Services:         Services{Mode: DefaultServiceMode, HealthzBindAddress: ":10256"},
		LoadBalancer:     LoadBalancer{MemberlistPort: 10362},
		Policy: Policy{Mode: DefaultPolicyMode, TokenFile: "/var/run/secrets/coelan-controller/token",
			ControllerPort: 10363},
		Conntrack:  Conntrack{Limits: AutoLimits},
		Neighbours: Neighbours{MaxPerSecond: DefaultNeighbourRate},
		CNI: CNI{
			BinDir:  "/opt/cni/bin",
			ConfDir: "/etc/cni/net.d",
			Socket:  "/run/coelan/cni.sock",
		},
		MetricsBindAddress: ":10360",
		MetricsAccess:      metricsaccess.Authorized,
		LogLevel:           "info",
		StateDir:           "/var/lib/coelan",
		AgentSocket:        "/run/coelan/agent.sock",
		SysctlDir:          "/proc/sys",
		APIServer:          APIServer{KubeletKubeconfigs: []string{"/etc/kubernetes/kubelet.conf"}},
	}
}

// Load reads and validates the file at path. Errors name the file and the field.
func Load(path string) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("configuration: %w", err)
	}
	c, err := Parse(data)
	if err != nil {
		return Config{}, fmt.Errorf("configuration %s: %w", path, err)
	}
	return c, nil
}

// Parse decodes YAML over the defaults and validates the result.
func Parse(data []byte) (Config, error) {
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return Config{}, err
	}
	// Unlike encoding/json this decoder tells mtu from MTU, and names a nested field
	// by its whole path.
	c := Default()
	strict, err := json.UnmarshalStrict(text, &c)
	if err := errors.Join(append(strict, err)...); err != nil {
		return Config{}, err
	}
	if err := c.Validate(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// StateFile is the path of name in the state directory.
func (c Config) StateFile(name string) string { return filepath.Join(c.StateDir, name) }
