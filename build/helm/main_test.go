// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/v2/lint"
)

const chartDir = "../../deploy/helm/coelan"

func TestManifestsAreTheChart(t *testing.T) {
	dir := t.TempDir()
	if err := generate(chartDir, dir); err != nil {
		t.Fatal(err)
	}
	for _, m := range manifests {
		want, err := os.ReadFile(filepath.Join(dir, m.file))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("../../deploy", m.file))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("deploy/%s is not what the chart gives: run `make generate`", m.file)
		}
	}
}

func TestLint(t *testing.T) {
	dir, err := filepath.Abs(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range lint.RunAll(dir, nil, "coelan-system").Messages {
		if !strings.Contains(m.Err.Error(), "icon is recommended") {
			t.Error(m)
		}
	}
}

func TestValues(t *testing.T) {
	config := func(key string, value any) map[string]any {
		return map[string]any{"config": map[string]any{key: value}}
	}
	tests := map[string]struct {
		values map[string]any
		want   []string // in the objects
		absent []string
		err    string
	}{
		"RESTCONF is off": {absent: []string{"restconf"}},
		"RESTCONF": {
			values: map[string]any{"restconf": map[string]any{"enabled": true, "bindAddress": "10.0.0.1:8443"}},
			want: []string{"--restconf-bind-address=10.0.0.1:8443", "containerPort: 8443", "targetPort: 8443",
				"resourceNames: [coelan-restconf-users]", "name: extension-apiserver-authentication-reader",
				"resources: [services]\n    verbs: [create, update, delete]", "resources: [endpointslices]\n    verbs: [create, update, delete]",
				"resources: [networkpolicies]\n    verbs: [create, update, delete]"},
		},
		"the watcher is off": {absent: []string{"coelan-watcher"}},
		"the watcher": {
			values: map[string]any{"watcher": map[string]any{"enabled": true, "host": "https://odl:8443", "caKey": "ca.crt", "secret": "odl"}},
			want: []string{`host: "https://odl:8443"`, "caFile: /etc/coelan-watcher/ca.crt", "secretName: odl", "containerPort: 10366",
				"leaderElectionNamespace: coelan-system"},
		},
		"the watcher needs a controller": {values: map[string]any{"watcher": map[string]any{"enabled": true}}, err: "watcher.host"},
		"the watcher's controller is a URL": {
			values: map[string]any{"watcher": map[string]any{"enabled": true, "host": "odl:8181"}}, err: "host",
		},
		"OVN is off": {absent: []string{"--backend", "--northbound", "coelan-ovn"}, want: []string{"type: ovs\n"}},
		"OVN": {
			values: map[string]any{
				"config": map[string]any{"encapsulation": "geneve", "backend": map[string]any{
					"type": "ovn", "cluster": "east", "southbound": "ssl:192.0.2.1:6642,ssl:[fd00::1]:6642",
				}},
				"controller":       map[string]any{"northbound": "ssl:192.0.2.1:6641", "northboundSecret": "ovn-client"},
				"southboundSecret": "ovn-reader",
			},
			want: []string{
				`certificates: "/etc/coelan-ovn"`, "name: southbound\n          secret:\n            secretName: ovn-reader\n",
				"type: ovn\n", `cluster: "east"`, `southbound: "ssl:192.0.2.1:6642,ssl:[fd00::1]:6642"`,
				"--backend=ovn\n", "--northbound=ssl:192.0.2.1:6641\n", "--cluster=east\n",
				"--policy-mode=enforced\n", "--northbound-certificate=/etc/coelan-ovn/tls.crt\n", "--northbound-private-key=/etc/coelan-ovn/tls.key\n",
				"--northbound-authority=/etc/coelan-ovn/ca.crt\n", "mountPath: /etc/coelan-ovn\n", "secretName: ovn-client\n",
			},
		},
		"OVN needs a northbound database": {
			values: map[string]any{"config": map[string]any{"backend": map[string]any{"type": "ovn"}}}, err: "controller.northbound",
		},
		"OVN's database is a remote": {
			values: map[string]any{"controller": map[string]any{"northbound": "192.0.2.1:6641"}}, err: "northbound",
		},
		"no subnets of namespaces": {values: config("mapping", "namespace"), absent: []string{"--namespace-subnets"}},
		"subnets of namespaces": {
			values: map[string]any{
				"config": map[string]any{"mapping": "namespace"},
				"controller": map[string]any{"namespaceSubnets": []any{
					map[string]any{"pool": "10.128.0.0/14", "prefixLength": 24}, map[string]any{"pool": "fd00:128::/48", "prefixLength": 64},
				}},
			},
			want: []string{"--namespace-subnets=10.128.0.0/14/24,fd00:128::/48/64\n"},
		},
		"subnets of namespaces without the mapping": {
			values: map[string]any{"controller": map[string]any{"namespaceSubnets": []any{
				map[string]any{"pool": "10.128.0.0/14", "prefixLength": 24},
			}}}, err: "controller.namespaceSubnets is for config.mapping namespace",
		},
		"a pool of subnets without their length": {
			values: map[string]any{
				"config":     map[string]any{"mapping": "namespace"},
				"controller": map[string]any{"namespaceSubnets": []any{map[string]any{"pool": "10.128.0.0/14"}}},
			}, err: "prefixLength",
		},
		"OVN is not run": {absent: []string{"coelan.io/ovn:", "coelan-ovn"}},
		"OVN is run": {
			values: map[string]any{
				"config": map[string]any{"encapsulation": "geneve", "backend": map[string]any{"type": "ovn"}},
				"ovn":    map[string]any{"enabled": true, "members": []any{"192.0.2.1", "fd00::1", "192.0.2.3"}, "secret": "ovn-certificate"},
			},
			want: []string{
				"kind: StatefulSet\n", "replicas: 3\n", "name: coelan-ovn-controller\n", "image: coelan.io/ovn:v", `value: "192.0.2.1,fd00::1,192.0.2.3"`,
				"--northbound=ssl:192.0.2.1:6641,ssl:[fd00::1]:6641,ssl:192.0.2.3:6641\n", "--northbound-certificate=/etc/coelan-ovn/tls.crt\n",
				`southbound: "ssl:192.0.2.1:6642,ssl:[fd00::1]:6642,ssl:192.0.2.3:6642"`, "secretName: ovn-certificate\n",
				`certificates: "/etc/coelan-ovn"`, "name: southbound\n          secret:\n            secretName: ovn-certificate\n",
				"containerPort: 6644\n", "path: /var/lib/coelan-ovn\n", "value: unix:/run/openvswitch/db.sock\n",
			},
		},
		"OVN without certificates": {
			values: map[string]any{
				"config": map[string]any{"encapsulation": "geneve", "backend": map[string]any{"type": "ovn"}},
				"ovn":    map[string]any{"enabled": true, "members": []any{"192.0.2.1"}},
			},
			want:   []string{"replicas: 1\n", "--northbound=tcp:192.0.2.1:6641\n", `southbound: "tcp:192.0.2.1:6642"`, `certificates: ""`},
			absent: []string{"/etc/coelan-ovn", "name: certificate", "name: southbound\n          secret"},
		},
		"OVN is run for its backend": {
			values: map[string]any{"ovn": map[string]any{"enabled": true, "members": []any{"192.0.2.1"}}}, err: "ovn.enabled needs config.backend.type ovn",
		},
		"OVN has members": {
			values: map[string]any{
				"config": map[string]any{"backend": map[string]any{"type": "ovn"}}, "ovn": map[string]any{"enabled": true},
			}, err: "members",
		},
		"an unknown backend": {values: config("backend", map[string]any{"type": "contrail"}), err: "backend"},
		"Neutron is off":     {absent: []string{"neutron-spare-ports", "clouds", "name: coelan-controller-neutron\n", "coelan-controller-nodes"}},
		"Neutron by keystone": {
			values: map[string]any{
				"config": map[string]any{"encapsulation": "geneve", "backend": map[string]any{
					"type": "neutron", "cluster": "east", "southbound": "ssl:192.0.2.1:6642", "machineBridge": true,
				}},
				"controller": map[string]any{"northbound": "ssl:192.0.2.1:6641", "northboundSecret": "ovn-client"},
				"neutron": map[string]any{
					"cloudsSecret": "clouds", "cloud": "mycloud", "sparePorts": 20,
					"projects": map[string]any{"0123abcd": []any{"shop", "bank"}, "open": []any{"*"}},
					"octavia":  map[string]any{"subnet": "vips", "floatingNetwork": "out"},
				},
			},
			want: []string{
				"type: neutron\n", "machineBridge: true\n", "--backend=neutron\n", "--clouds-file=/etc/openstack/clouds.yaml\n", "--cloud=mycloud\n", "--cluster=east\n",
				`"--neutron-projects=0123abcd=shop,bank"` + "\n", `"--neutron-projects=open=*"` + "\n",
				"--neutron-spare-ports=20\n", "--octavia-subnet=vips\n", "--octavia-provider=ovn\n", "--octavia-floating-network=out\n",
				"--northbound=ssl:192.0.2.1:6641\n", "--northbound-certificate=/etc/coelan-ovn/tls.crt\n",
				"secretName: clouds\n", "mountPath: /etc/openstack\n", "secretName: ovn-client\n", "--policy-mode=enforced\n",
				"name: coelan-controller-neutron\n", "policyName: coelan-controller-nodes\n",
			},
			absent: []string{"--neutron-endpoint", "--octavia-endpoint"},
		},
		"Neutron without keystone": {
			values: map[string]any{
				"config":  map[string]any{"encapsulation": "geneve", "backend": map[string]any{"type": "neutron"}},
				"neutron": map[string]any{"endpoint": "http://192.0.2.1:9696/", "project": "coelan"},
			},
			want:   []string{"--neutron-endpoint=http://192.0.2.1:9696/\n", "--neutron-project=coelan\n", "--neutron-spare-ports=8\n"},
			absent: []string{"--clouds-file", "name: clouds", "--northbound", "--neutron-projects"},
		},
		"subnet pools of OpenStack": {
			values: map[string]any{
				"config":     map[string]any{"encapsulation": "geneve", "mapping": "namespace", "backend": map[string]any{"type": "neutron"}},
				"controller": map[string]any{"namespaceSubnets": []any{map[string]any{"pool": "10.128.0.0/14", "prefixLength": 24}}},
				"neutron": map[string]any{"endpoint": "http://192.0.2.1:9696/", "project": "coelan", "subnetPools": []any{
					"6a1f0000-0000-4000-8000-000000000001", "6a1f0000-0000-4000-8000-000000000002",
				}},
			},
			want: []string{"--neutron-subnet-pools=6a1f0000-0000-4000-8000-000000000001,6a1f0000-0000-4000-8000-000000000002\n"},
		},
		"subnet pools of OpenStack without a part of them": {
			values: map[string]any{
				"config": map[string]any{"encapsulation": "geneve", "backend": map[string]any{"type": "neutron"}},
				"neutron": map[string]any{
					"endpoint": "http://192.0.2.1:9696/", "project": "coelan", "subnetPools": []any{"6a1f0000-0000-4000-8000-000000000001"},
				},
			}, err: "neutron.subnetPools needs controller.namespaceSubnets",
		},
		"a project of Neutron has namespaces": {
			values: map[string]any{
				"config":  map[string]any{"encapsulation": "geneve", "backend": map[string]any{"type": "neutron"}},
				"neutron": map[string]any{"endpoint": "http://192.0.2.1:9696/", "project": "coelan", "projects": map[string]any{"q": []any{}}},
			}, err: "projects",
		},
		"Neutron is somewhere": {values: config("backend", map[string]any{"type": "neutron"}), err: "where is Neutron"},
		"Neutron's cloud": {
			values: map[string]any{
				"config": map[string]any{"backend": map[string]any{"type": "neutron"}}, "neutron": map[string]any{"cloudsSecret": "clouds"},
			}, err: "neutron.cloudsSecret needs neutron.cloud",
		},
		"a folder moves in the settings, the pod and the host": {
			values: config("cni", map[string]any{"binDir": "/usr/libexec/cni"}),
			want:   []string{"binDir: /usr/libexec/cni", "mountPath: /usr/libexec/cni", "path: /usr/libexec/cni"},
			absent: []string{"/opt/cni/bin"},
		},
		"health is asked where it is served": {
			values: config("metricsBindAddress", "[fd00::1]:9999"),
			want:   []string{`metricsBindAddress: "[fd00::1]:9999"`, `host: "fd00::1"`, "port: 9999"},
		},
		"limits of connections": {
			values: config("conntrack", map[string]any{"limits": "always", "maxDefault": 1000000, "maxPerRouter": 20000000}),
			want:   []string{"limits: always\n", "maxDefault: 1000000\n", "maxPerRouter: 20000000\n"},
		},
		"limit of questions": {
			values: config("neighbours", map[string]any{"maxPerSecond": 1000000}),
			want:   []string{"neighbours:", "maxPerSecond: 1000000\n"},
		},
		"limits of connections that are no numbers": {
			values: config("conntrack", map[string]any{"maxPerRouter": "many"}), err: "maxPerRouter",
		},
		"metrics that are open are served in the clear": {
			values: map[string]any{
				"config": map[string]any{"metricsAccess": "open"}, "controller": map[string]any{"metricsAccess": "open"},
			},
			want:   []string{"metricsAccess: open\n", "--metrics-access=open", "scheme: HTTP\n", "prometheus.io/scheme: http\n"},
			absent: []string{"scheme: HTTPS", "scheme: https"},
		},
		"no probes where nothing answers": {
			values: map[string]any{
				"config":     map[string]any{"metricsBindAddress": "0"},
				"controller": map[string]any{"metricsBindAddress": "0"},
			},
			absent: []string{"Probe:", "prometheus.io", "name: metrics"},
		},
		"another socket folder is mounted": {
			values: config("agentSocket", "/run/other/agent.sock"),
			want:   []string{"mountPath: /run/other\n", "path: /run/other\n", "path: /run/coelan\n"},
		},
		"lists are lists": {
			values: config("snat", map[string]any{"excludeCIDRs": []any{"10.0.0.0/8", "fd00::/8"}}),
			want:   []string{`excludeCIDRs: ["10.0.0.0/8","fd00::/8"]`},
		},
		"the controller's health is asked where it is served": {
			values: map[string]any{"controller": map[string]any{"metricsBindAddress": "[fd00::2]:9998"}},
			want:   []string{"--metrics-bind-address=[fd00::2]:9998", `host: "fd00::2"`, "containerPort: 9998"},
			absent: []string{"10361"},
		},
		"agents and controller map namespaces alike": {
			values: config("mapping", "namespace"),
			want:   []string{"mapping: namespace\n", "--mapping=namespace\n"},
			absent: []string{"mapping: flat", "mapping=flat"},
		},
		"bridges of physical networks": {
			values: config("bridgeMappings", map[string]any{"physnet1": "br-ex"}),
			want:   []string{`bridgeMappings: {"physnet1":"br-ex"}`},
		},
		"cards of physical networks": {
			values: config("uplinks", map[string]any{"office": map[string]any{"interface": "eth2", "shared": true}}),
			want:   []string{`uplinks: {"office":{"interface":"eth2","shared":true}}`},
		},
		"agents find the controllers where these listen": {
			values: map[string]any{"controller": map[string]any{"policyBindAddress": "[fd00::1]:9999"}},
			want:   []string{"containerPort: 9999\n", "      port: 9999\n"},
			absent: []string{"10363"},
		},
		"the token is where the agent reads it": {
			values: config("policy", map[string]any{"tokenFile": "/run/t/x"}),
			want:   []string{"mountPath: /run/t\n", "path: x\n", "tokenFile: /run/t/x\n"},
		},
		"off is not false":            {values: config("policy", map[string]any{"mode": false}), want: []string{`mode: "off"`}},
		"an unknown mode":             {values: config("policy", map[string]any{"mode": "on"}), err: "mode"},
		"networks by Multus":          {values: config("servesNetworks", false), want: []string{"servesNetworks: false\n"}},
		"definitions stay by default": {want: []string{"kind: CustomResourceDefinition", "helm.sh/resource-policy: keep"}},
		"definitions go if asked": {
			values: map[string]any{"crds": map[string]any{"keep": false}},
			want:   []string{"kind: CustomResourceDefinition"},
			absent: []string{"resource-policy"},
		},
		"definitions by somebody else": {
			values: map[string]any{"crds": map[string]any{"install": false}},
			absent: []string{"kind: CustomResourceDefinition"},
		},
		"the API server is where kubelet says": {want: []string{"name: coelan-api-server\n"}, absent: []string{"KUBERNETES_SERVICE"}},
		"the API server is elsewhere": {
			values: map[string]any{"apiServer": map[string]any{"host": "fd00::11"}},
			want:   []string{`KUBERNETES_SERVICE_HOST: "fd00::11"`, `KUBERNETES_SERVICE_PORT: "6443"`},
		},
		"no port of the API server": {values: map[string]any{"apiServer": map[string]any{"port": 0}}, err: "port"},
		"an image of one's own": {
			values: map[string]any{"image": map[string]any{"repository": "example.org/c", "tag": "x"}},
			want:   []string{"image: example.org/c:x\n"},
		},
		"no namespace unless asked": {absent: []string{"kind: Namespace"}},
		"an unknown setting":        {values: config("encapsulaton", "vxlan"), err: "encapsulaton"},
		"a value out of range":      {values: config("datapath", "dpdk"), err: "datapath"},
		"an unknown mapping":        {values: config("mapping", "pod"), err: "mapping"},
		"a bridge without name": {
			values: config("bridgeMappings", map[string]any{"physnet1": ""}), err: "bridgeMappings",
		},
		"an uplink without interface": {
			values: config("uplinks", map[string]any{"office": map[string]any{"bridge": "br-ex"}}), err: "uplinks",
		},
		"a physical network of bad name": {
			values: config("bridgeMappings", map[string]any{"a:b": "br-ex"}), err: "invalid propertyName 'a:b'",
		},
		"no ServiceMonitor unless asked": {absent: []string{"ServiceMonitor", "coelan-metrics-readers"}},
		"a ServiceMonitor of the agents": {
			values: map[string]any{"metrics": map[string]any{"serviceMonitor": map[string]any{
				"enabled": true, "labels": map[string]any{"release": "prometheus"}, "interval": "30s",
			}}},
			want: []string{
				"kind: ServiceMonitor", "name: coelan-agent-metrics", "clusterIP: None", "port: 10360\n", "release: prometheus\n",
				"interval: 30s\n", "scheme: https\n", "bearerTokenFile:",
			},
			// controllers serve them on their nodes only.
			absent: []string{"coelan-controller-metrics", "authorization:\n"},
		},
		"a ServiceMonitor of the controllers, too": {
			values: map[string]any{
				"metrics":    map[string]any{"serviceMonitor": map[string]any{"enabled": true}},
				"controller": map[string]any{"metricsBindAddress": ":10361", "metricsAccess": "open"},
			},
			want: []string{"name: coelan-controller-metrics", "port: 10361\n", "scheme: http\n"},
		},
		"a ServiceMonitor with a token of its own": {
			values: map[string]any{"metrics": map[string]any{"serviceMonitor": map[string]any{
				"enabled": true, "authorization": map[string]any{"credentials": map[string]any{"name": "scraper", "key": "token"}},
			}}},
			want:   []string{"authorization:\n", "name: scraper\n"},
			absent: []string{"bearerTokenFile"},
		},
		"no ServiceMonitor where nothing is served": {
			values: map[string]any{
				"metrics": map[string]any{"serviceMonitor": map[string]any{"enabled": true}}, "config": map[string]any{"metricsBindAddress": "0"},
			},
			absent: []string{"ServiceMonitor"},
		},
		"readers of the metrics": {
			values: map[string]any{"metrics": map[string]any{"readers": []any{map[string]any{"namespace": "monitoring", "name": "prometheus-k8s"}}}},
			want:   []string{"name: coelan-metrics-readers", "namespace: monitoring\n", "name: prometheus-k8s\n"},
		},
		"a reader without a namespace": {
			values: map[string]any{"metrics": map[string]any{"readers": []any{map[string]any{"name": "prometheus-k8s"}}}}, err: "namespace",
		},
		"no controller": {values: map[string]any{"controller": map[string]any{"replicas": 0}}, err: "replicas"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := render(chartDir, tc.values, "")
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("error %v, want one that names %s", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range tc.want {
				if !strings.Contains(got, w) {
					t.Errorf("%q is missing", w)
				}
			}
			for _, a := range tc.absent {
				if strings.Contains(got, a) {
					t.Errorf("%q is there", a)
				}
			}
		})
	}
}
