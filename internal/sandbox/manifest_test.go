// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const installed = `# Coelan
apiVersion: v1
kind: Namespace
metadata: {name: coelan-system}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: coelan-config, namespace: coelan-system}
data:
  agent.yaml: |
    # How packets travel.
    encapsulation: geneve
    services:
      mode: kube-proxy
      other: 1
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: coelan-agent, namespace: coelan-system}
`

func TestManifest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "coelan.yaml")
	if err := os.WriteFile(file, []byte(installed), 0o644); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[Services][]string{
		KubeProxyServices: {"kind: Namespace", "# How packets travel.", "mode: kube-proxy", "kind: ServiceAccount"},
		NativeServices:    {"kind: Namespace", "encapsulation: geneve", "mode: native", "other: 1", "kind: ServiceAccount"},
	} {
		s := sandboxOf(Dual)
		s.Services = mode
		manifest, err := s.manifest([]string{file})
		if err != nil {
			t.Fatal(err)
		}
		rest := manifest
		for _, text := range want {
			_, after, found := strings.Cut(rest, text)
			if !found {
				t.Fatalf("%s: %q is missing, or not where it should be, in:\n%s", mode, text, manifest)
			}
			rest = after
		}
	}
}

// Agents without the setting of the Service mode would leave the cluster without Services.
func TestManifestWithoutSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "coelan.yaml")
	if err := os.WriteFile(file, []byte(installed[:strings.Index(installed, "---")]), 0o644); err != nil {
		t.Fatal(err)
	}
	s := sandboxOf(Dual)
	s.Services = NativeServices
	if _, err := s.manifest([]string{file}); err == nil || !strings.Contains(err.Error(), "coelan-config") {
		t.Errorf("error %v does not name the ConfigMap", err)
	}
}

// controllers is a Deployment of them.
const controllers = `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: coelan-controller, namespace: coelan-system}
spec:
  template:
    spec:
      containers: [{name: controller, args: [--vni-range=2-9]}]
`

// The controllers need rights that not every manifest gives them.
func TestManifestNeutron(t *testing.T) {
	const rights = `---
kind: ClusterRole
metadata: {name: coelan-controller-neutron}
`
	s := sandboxOf(Dual)
	s.Services, s.Backend, s.octaviaSubnet = NativeServices, NeutronBackend, "5ab"
	dir := t.TempDir()
	base, more := filepath.Join(dir, "coelan.yaml"), filepath.Join(dir, "neutron.yaml")
	for file, text := range map[string]string{base: installed + controllers, more: rights} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	manifest, err := s.manifest([]string{base, more})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"type: neutron", "machineBridge: true", "mtu: 1442", "encapsulation: geneve", "--backend=neutron", "--northbound=tcp:192.168.33.11:6641",
		"--neutron-endpoint=http://192.168.33.11:9696/", "--neutron-project=coelan",
		"--octavia-endpoint=http://192.168.33.11:9876/", "--octavia-subnet=5ab", "name: coelan-controller-neutron",
	} {
		if !strings.Contains(manifest, want) {
			t.Errorf("%q is missing in\n%s", want, manifest)
		}
	}
	if _, err := s.manifest([]string{base}); err == nil || !strings.Contains(err.Error(), "coelan-controller-neutron") {
		t.Errorf("error %v does not name the ClusterRole", err)
	}
}

func TestManifestOVN(t *testing.T) {
	s := sandboxOf(IPv6)
	s.Services, s.Backend = NativeServices, OVNBackend
	file := filepath.Join(t.TempDir(), "coelan.yaml")
	for text, want := range map[string][]string{
		installed + controllers: {
			"type: ovn", "encapsulation: geneve", "--vni-range=2-9", "--backend=ovn",
			"--northbound=tcp:[fd00:192:168:33::11]:6641",
		},
		installed:   {}, // a controller that does not know of OVN would do nothing there
		controllers: {},
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		manifest, err := s.manifest([]string{file})
		if (err != nil) != (len(want) == 0) {
			t.Errorf("error %v of\n%s", err, text)
		}
		for _, w := range want {
			if !strings.Contains(manifest, w) {
				t.Errorf("%q is missing in\n%s", w, manifest)
			}
		}
	}
}

func TestZones(t *testing.T) {
	s := Spec{Workers: 3, Zones: 2}
	for node, want := range map[string]string{"cp": "zone1", "worker1": "zone1", "worker2": "zone2", "worker3": "zone1"} {
		if got := s.zone(node); got != want {
			t.Errorf("%s is in %s, want %s", node, got, want)
		}
	}
	if got := (Spec{Workers: 1}).zone("worker1"); got != "" {
		t.Errorf("without zones worker1 is in %s", got)
	}
}
