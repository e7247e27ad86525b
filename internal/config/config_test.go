// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestParse(t *testing.T) {
	want := Default()
	want.Datapath = DatapathNetdev
	want.MTU = 1400
	want.SNAT.ExcludeCIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	want.CNI.BinDir = "/usr/lib/cni"
	want.Mapping = MapNamespace
	want.BridgeMappings = map[string]string{"physnet1": "br-ex", "dc.2_b": "br-dc"}
	want.Uplinks = map[string]Uplink{"office": {Interface: "eth2"}, "the-second-office": {Interface: "eth3", Bridge: "br-2", Shared: true}}
	want.Subnets = map[string][]netip.Prefix{"lan": {netip.MustParsePrefix("10.1.0.0/20")}}
	want.ServesNetworks = ServesNever
	want.Services = Services{
		Mode: NativeServices, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")},
		ExternalIPs:       []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8::/64")},
		NodePortAddresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, HealthzBindAddress: "0",
	}
	want.LoadBalancer.MemberlistPort = 7946
	want.Neighbours = Neighbours{MaxPerSecond: 200}
	want.Conntrack = Conntrack{Limits: AlwaysLimits, MaxDefault: 100_000, MaxPerRouter: 20_000}
	want.Policy = Policy{Mode: EnforcedPolicies, AuditDenied: true, TokenFile: "/token", ControllerPort: 10463}
	got, err := Parse([]byte(`
datapath: netdev
mtu: 1400
snat:
  excludeCIDRs: [10.0.0.0/8, "fd00::/8"]
cni: {binDir: /usr/lib/cni}
mapping: namespace
bridgeMappings: {physnet1: br-ex, dc.2_b: br-dc}
uplinks: {office: {interface: eth2}, the-second-office: {interface: eth3, bridge: br-2, shared: true}}
subnets: {lan: [10.1.0.0/20]}
servesNetworks: false
services:
  mode: native
  cidrs: [10.96.0.0/16, "fd00:96::/112"]
  externalIPs: [203.0.113.0/24, "2001:db8::/64"]
  nodePortAddresses: [192.0.2.0/24]
  healthzBindAddress: "0"
loadBalancer: {memberlistPort: 7946}
conntrack: {limits: always, maxDefault: 100000, maxPerRouter: 20000}
neighbours: {maxPerSecond: 200}
policy: {mode: enforced, auditDenied: true, tokenFile: /token, controllerPort: 10463}
`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

func TestOVN(t *testing.T) {
	want := Default()
	want.Backend = Backend{Type: OVNBackend, Cluster: "east", Southbound: "ssl:192.0.2.1:6642,ssl:[fd00::1]:6642,unix:/run/ovn/sb.sock",
		Certificates: "/etc/coelan-ovn"}
	want.BridgeMappings = map[string]string{"office": "br-office"}
	got, err := Parse([]byte(`
backend: {type: ovn, cluster: east, southbound: "ssl:192.0.2.1:6642,ssl:[fd00::1]:6642,unix:/run/ovn/sb.sock", certificates: /etc/coelan-ovn}
bridgeMappings: {office: br-office}
`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

func TestEmptyFileIsDefault(t *testing.T) {
	for _, text := range []string{"", "{}", "# nothing\n"} {
		got, err := Parse([]byte(text))
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if diff := cmp.Diff(Default(), got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

func TestWrongSettings(t *testing.T) {
	long := "/" + strings.Repeat("x", 120)
	for _, tc := range []struct{ name, text, want string }{
		{"not YAML", "a: [", "yaml"},
		{"unknown field", "datapth: netdev", `unknown field "datapth"`},
		{"unknown nested field", "snat: {exclude: []}", `unknown field "snat.exclude"`},
		{"wrong case", "MTU: 1400", `unknown field "MTU"`},
		{"repeated field", "mtu: 1400\nmtu: 1500", `"mtu" already set`},
		{"wrong type", "mtu: large", "mtu"},
		{"backend", "backend: {type: contrail}", `backend.type: is "contrail", not ovs, ovn or neutron`},
		{"Neutron with logs of denied packets", "backend: {type: neutron}\npolicy: {auditDenied: true}", "policy.auditDenied: Neutron does not log"},
		{"Neutron without tunnels", "backend: {type: neutron}\npolicy: {mode: off}\nencapsulation: noEncap", "encapsulation: is noEncap, but OVN"},
		{"unknown field of the backend", "backend: {type: ovn, northbound: 'tcp:192.0.2.1:6641'}", `unknown field "backend.northbound"`},
		{"OVN's settings without it", "backend: {southbound: 'tcp:192.0.2.1:6642'}", "backend: cluster, southbound, certificates and machineBridge are OVN's"},
		{"machines of OpenStack with OVN", "backend: {type: ovn, machineBridge: true}", "backend.machineBridge: is about nodes that are machines of OpenStack"},
		{"machines of OpenStack with Open vSwitch", "backend: {machineBridge: true}", "certificates and machineBridge are OVN's"},
		{"cluster", "backend: {type: ovn, cluster: East}", `backend.cluster: "East": `},
		{"remote of no kind", "backend: {type: ovn, southbound: '192.0.2.1:6642'}", `backend.southbound: "192.0.2.1:6642" is not tcp:ADDRESS:PORT`},
		{"one bad remote", "backend: {type: ovn, southbound: 'tcp:192.0.2.1:6642,ssl:host:6642'}", `backend.southbound: "ssl:host:6642" is not`},
		{"relative socket", "backend: {type: ovn, southbound: 'unix:sb.sock'}", `backend.southbound: "unix:sb.sock" is not`},
		{"relative folder of certificates", "backend: {type: ovn, certificates: tls}", "backend.certificates"},
		{"OVN without tunnels", "backend: {type: ovn}\nencapsulation: noEncap", "encapsulation: is noEncap, but OVN has tunnels"},
		{"cards with OVN", "backend: {type: ovn}\nuplinks: {a: {interface: eth2}}", "uplinks: OVN has bridges of physical networks alone"},
		{"kube-proxy with OVN", "backend: {type: ovn}\nservices: {mode: kube-proxy}", "services.mode: is kube-proxy, but OVN"},
		{"mappings that nobody reads", "backend: {type: ovn}\nbridgeMappings: {a: br-a}", "bridgeMappings: without backend.southbound"},
		{"datapath", "datapath: dpdk", `datapath: "dpdk" is not one of auto, system, netdev`},
		{"encapsulation", "encapsulation: gre", `encapsulation: "gre" is not one of vxlan, geneve, noEncap`},
		{"mtu too small", "mtu: 1279", "mtu: 1279"},
		{"mtu too large", "mtu: 65536", "mtu: 65536"},
		{"mtu negative", "mtu: -1", "mtu: -1"},
		{"bridge empty", `bridge: ""`, "bridge: must not be empty"},
		{"bridge too long", "bridge: abcdefghijklmnop", `bridge: "abcdefghijklmnop" is longer than 15`},
		{"bridge with slash", "bridge: a/b", `bridge: "a/b" is not an interface name`},
		{"gateway too long", "gatewayInterface: abcdefghijklmnop", "gatewayInterface: "},
		{"gateway is bridge", "gatewayInterface: br-int", "gatewayInterface: \"br-int\" is also the bridge"},
		{"relative directory", "ovsRunDir: run", `ovsRunDir: "run" is not an absolute path`},
		{"mapping", "mapping: pod", `mapping: "pod" is not one of flat, namespace`},
		{"mapping empty", `mapping: ""`, `mapping: "" is not one of flat, namespace`},
		{"bridge mappings as a list", "bridgeMappings: [physnet1:br-ex]", "bridgeMappings"},
		{"physical network with slash", "bridgeMappings: {a/b: br-ex}", `bridgeMappings: "a/b" is not the name`},
		{"physical network empty", `bridgeMappings: {"": br-ex}`, `bridgeMappings: "" is not the name`},
		{"physical network too long", "bridgeMappings: {" + strings.Repeat("x", 64) + ": br-ex}", "is not the name"},
		{"physical network twice", "bridgeMappings: {a: br-ex, a: br-ey}", `"a" already set`},
		{"mapped bridge empty", `bridgeMappings: {a: ""}`, "bridgeMappings[a]: must not be empty"},
		{"mapped bridge null", `bridgeMappings: {a: null}`, "bridgeMappings[a]: must not be empty"},
		{"mapped bridge too long", "bridgeMappings: {a: abcdefghijklmnop}", "bridgeMappings[a]: "},
		{"uplink as a name", "uplinks: {office: eth2}", "uplinks"},
		{"uplink with slash", "uplinks: {a/b: {interface: eth2}}", `uplinks: "a/b" is not the name`},
		{"uplink without interface", "uplinks: {a: {bridge: br-a}}", "uplinks[a].interface: must not be empty"},
		{"uplink of unknown field", "uplinks: {a: {interface: eth2, share: true}}", `"uplinks.a.share"`},
		{"uplink's bridge too long", "uplinks: {abcdefghijklm: {interface: eth2}}", "uplinks[abcdefghijklm].bridge: "},
		{"uplink is also mapped", "bridgeMappings: {a: br-b}\nuplinks: {a: {interface: eth2}}", "uplinks[a]: bridgeMappings has"},
		{"uplink of a mapped bridge", "bridgeMappings: {b: br-a}\nuplinks: {a: {interface: eth2}}", `"br-a" is also the bridge of bridgeMappings[b]`},
		{"uplinks of one bridge", "uplinks: {a: {interface: eth2, bridge: x}, b: {interface: eth3, bridge: x}}", `"x" is also the bridge of uplinks[a]`},
		{"uplinks of one card", "uplinks: {a: {interface: eth2}, b: {interface: eth2}}", `"eth2" is also the interface of uplinks[a]`},
		{"uplinks of one shared card", "uplinks: {a: {interface: eth0, shared: true}, b: {interface: eth0}}", `"eth0" is also the interface of uplinks[a]: Networks of several VLANs can name one physical network`},
		{"uplink that may be shared", "uplinks: {a: {interface: eth0, shared: maybe}}", "uplinks"},
		{"uplink is the gateway", "uplinks: {a: {interface: coelan-gw0}}", `uplinks[a]: "coelan-gw0" is Coelan's own`},
		{"uplink's bridge is br-int", "uplinks: {int: {interface: eth2}}", `uplinks[int]: "br-int" is Coelan's own`},
		{"uplink is its bridge", "uplinks: {a: {interface: br-a}}", "are both"},
		{"mapped bridge is br-int", "bridgeMappings: {a: br-int}", `bridgeMappings[a]: "br-int" is the integration bridge`},
		{"mapped bridge is the renamed one", "bridge: br-x\nbridgeMappings: {a: br-x}", `"br-x" is the integration bridge`},
		{"bridge of two networks", "bridgeMappings: {a: br-ex, b: br-ex}", `bridgeMappings[b]: "br-ex" is also the bridge of "a"`},
		{"serves networks", "servesNetworks: maybe", `servesNetworks: "maybe" is not one of auto, true, false`},
		{"serves networks as a number", "servesNetworks: 1", "servesNetworks: 1 is not one of auto, true, false"},
		{"CIDR without length", "snat: {excludeCIDRs: [10.0.0.0]}", "10.0.0.0"},
		{"empty CIDR", `snat: {excludeCIDRs: [""]}`, "snat.excludeCIDRs[0]: must not be empty"},
		{"CIDR with host bits", "snat: {excludeCIDRs: [10.0.0.1/8]}", "snat.excludeCIDRs[0]: 10.0.0.1/8 has bits set"},
		{"mapped CIDR", `snat: {excludeCIDRs: ["::ffff:10.0.0.0/104"]}`, "snat.excludeCIDRs[0]: write the IPv4 prefix"},
		{"overlapping CIDRs", "snat: {excludeCIDRs: [10.0.0.0/8, 10.1.0.0/16]}",
			"snat.excludeCIDRs[1]: 10.1.0.0/16 overlaps [0] 10.0.0.0/8"},
		{"excludes without SNAT", "snat: {enabled: false, excludeCIDRs: [10.0.0.0/8]}", "snat.excludeCIDRs: has no effect"},
		{"service mode", "services: {mode: iptables}", `services.mode: "iptables" is not one of native, kube-proxy`},
		{"service mode empty", `services: {mode: ""}`, `services.mode: ""`},
		{"service CIDR with host bits", "services: {cidrs: [10.96.0.1/16]}", "services.cidrs[0]: 10.96.0.1/16 has bits set"},
		{"service CIDRs overlap", "services: {cidrs: [10.96.0.0/16, 10.96.1.0/24]}", "services.cidrs[1]: 10.96.1.0/24 overlaps"},
		{"service CIDR of everything", "services: {cidrs: [0.0.0.0/0]}", "services.cidrs[0]: 0.0.0.0/0 is every address"},
		{"service CIDR empty", `services: {cidrs: [""]}`, "services.cidrs[0]: must not be empty"},
		{"external IPs that are no prefixes", "services: {externalIPs: [192.0.2.1]}", "192.0.2.1"},
		{"external IPs with host bits", "services: {externalIPs: [192.0.2.1/24]}", "services.externalIPs[0]: 192.0.2.1/24"},
		{"external IPs twice", "services: {externalIPs: [192.0.2.0/24, 192.0.2.128/25]}", "services.externalIPs[1]: 192.0.2.128/25 overlaps [0] 192.0.2.0/24"},
		{"node ports by name", "services: {nodePortAddresses: [primary]}", "primary"},
		{"node ports on loopback", "services: {nodePortAddresses: [127.0.0.0/8]}", "services.nodePortAddresses[0]: 127.0.0.0/8 is on loopback"},
		{"service healthz", "services: {healthzBindAddress: '10256'}", "services.healthzBindAddress: "},
		{"unknown field of services", "services: {proxyMode: native}", `unknown field "services.proxyMode"`},
		{"policy mode", "policy: {mode: audit}", `policy.mode: "audit" is not one of enforced, off`},
		{"policy token", "policy: {tokenFile: token}", `policy.tokenFile: "token" is not an absolute path`},
		{"memberlist port", "loadBalancer: {memberlistPort: 0}", "loadBalancer.memberlistPort: 0 is not between"},
		{"memberlist port too large", "loadBalancer: {memberlistPort: 65536}", "loadBalancer.memberlistPort: 65536"},
		{"controller port", "policy: {controllerPort: 65536}", "policy.controllerPort: 65536 is not between 0 and 65535"},
		{"memberlist port of the metrics", "loadBalancer: {memberlistPort: 10360}", "is also the port of metricsBindAddress"},
		{"conntrack limits", "conntrack: {limits: on}", "conntrack.limits"},
		{"conntrack limits empty", `conntrack: {limits: ""}`, `conntrack.limits: "" is not one of auto, always, never`},
		{"conntrack limit negative", "conntrack: {maxPerRouter: -1}", "conntrack.maxPerRouter: -1 is neither 0"},
		{"conntrack limit too large", "conntrack: {maxDefault: 2147483648}", "conntrack.maxDefault: 2147483648 is neither 0"},
		{"questions negative", "neighbours: {maxPerSecond: -1}", "neighbours.maxPerSecond: -1 is neither 0"},
		{"too many questions", "neighbours: {maxPerSecond: 1000001}", "neighbours.maxPerSecond: 1000001 is neither 0"},
		{"access to the metrics", "metricsAccess: all", `metricsAccess: "all" is not one of authorized, open`},
		{"bind address without port", "metricsBindAddress: localhost", "metricsBindAddress: "},
		{"bind address with name", "metricsBindAddress: localhost:80", `metricsBindAddress: "localhost" is not an address`},
		{"bind port too large", "metricsBindAddress: ':70000'", `metricsBindAddress: port "70000"`},
		{"log level", "logLevel: loud", `logLevel: "loud"`},
		{"sockets equal", "agentSocket: /run/coelan//cni.sock", "is also cni.socket"},
		{"directories equal", "cni: {binDir: /x, confDir: /x/}", "cni.confDir: \"/x/\" is also cni.binDir"},
		{"socket too long", "cni: {socket: " + long + "}", "cni.socket: "},
		{"socket relative", "agentSocket: a.sock", "agentSocket: "},
		{"state directory", "stateDir: ''", "stateDir: must not be empty"},
		{"kubeconfig relative", "kubeconfig: admin.conf", "kubeconfig: "},
		{"kubelet's kubeconfig relative", "apiServer: {kubeletKubeconfigs: [/a, kubelet.conf]}",
			`apiServer.kubeletKubeconfigs[1]: "kubelet.conf" is not an absolute path`},
		{"kubelet's kubeconfig empty", `apiServer: {kubeletKubeconfigs: [""]}`,
			"apiServer.kubeletKubeconfigs[0]: must not be empty"},
		{"binary relative", "cni: {binary: coelan-cni}", "cni.binary: "},
		{"sysctls relative", "sysctlDir: proc", "sysctlDir: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse([]byte(tc.text))
			if err == nil {
				t.Fatalf("accepted:\n%s", tc.text)
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %q does not contain %q", err, tc.want)
			}
		})
	}
}

func TestAllFindingsAtOnce(t *testing.T) {
	_, err := Parse([]byte("mtu: 1\nlogLevel: loud\n"))
	for _, field := range []string{"mtu: ", "logLevel: "} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("error %v does not name %q", err, field)
		}
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.yaml")
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("missing file: %v", err)
	}
	if err := os.WriteFile(path, []byte("mtu: 1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("wrong file: %v", err)
	}
}

// TestEverySettingIsDocumented keeps docs/operate/configuration.md complete.
func TestEverySettingIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/operate/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range settings("", reflect.TypeFor[Config]()) {
		if !strings.Contains(string(doc), "`"+name+"`") {
			t.Errorf("docs/operate/configuration.md does not mention `%s`", name)
		}
	}
}

func settings(prefix string, t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		f := t.Field(i)
		name := prefix + f.Tag.Get("json")
		if f.Type.Kind() == reflect.Struct {
			names = append(names, settings(name+".", f.Type)...)
			continue
		}
		names = append(names, name)
	}
	return names
}

func TestServesNetworks(t *testing.T) {
	for text, want := range map[string]ServesNetworks{
		"auto": ServesAuto, "true": ServesAlways, "false": ServesNever, `"true"`: ServesAlways, `"false"`: ServesNever,
	} {
		got, err := Parse([]byte("servesNetworks: " + text))
		if err != nil || got.ServesNetworks != want {
			t.Errorf("%s: %q, %v; want %q", text, got.ServesNetworks, err, want)
		}
	}
}

func TestPolicyMode(t *testing.T) {
	for text, want := range map[string]PolicyMode{
		"off": PoliciesOff, `"off"`: PoliciesOff, "false": PoliciesOff, "enforced": EnforcedPolicies,
	} {
		got, err := Parse([]byte("policy: {mode: " + text + "}"))
		if err != nil || got.Policy.Mode != want {
			t.Errorf("%s: %q, %v; want %q", text, got.Policy.Mode, err, want)
		}
	}
}

func TestMappingAsFlag(t *testing.T) {
	var m Mapping
	for _, text := range []string{"flat", "namespace"} {
		if err := m.Set(text); err != nil || string(m) != text {
			t.Errorf("%q is %q, %v", text, m, err)
		}
	}
	for _, text := range []string{"", "Flat", "node"} {
		if err := m.Set(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
