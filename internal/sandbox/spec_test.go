// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSpecComplete(t *testing.T) {
	got, err := Spec{Datapath: "netdev"}.complete()
	if err != nil {
		t.Fatal(err)
	}
	want := Spec{Name: "coelan", ControlPlanes: 1, Workers: 2, Family: Dual, CNI: Coelan, Backend: OVSBackend, Datapath: "netdev", Services: defaultServices, ProxyMode: ProxyIPTables}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for field, spec := range map[string]Spec{
		"name":             {Name: "Ab"},
		"name ":            {Name: "a/../b"},
		"name  ":           {Name: strings.Repeat("a", 21)},
		"control planes":   {ControlPlanes: 2},
		"workers":          {Workers: -1},
		"workers ":         {Workers: 1000},
		"IP family":        {Family: "ipx"},
		"CNI":              {CNI: "flannel"},
		"backend":          {Backend: "dpdk"},
		"backend ":         {Backend: OVNBackend, CNI: Bridge},
		"backend  ":        {Backend: NeutronBackend, CNI: NoCNI},
		"backend neutron":  {Backend: NeutronBackend, Services: KubeProxyServices},
		"datapath":         {Datapath: "dpdk"},
		"services":         {Services: "ipvs"},
		"services ":        {Services: NativeServices, CNI: Bridge},
		"mode":             {ProxyMode: "ipvs"},
		"zones":            {Zones: -1},
		"vms":              {VMs: -1},
		"vms 11":           {VMs: 11, Backend: NeutronBackend, Datapath: userland},
		"backend neutron ": {VMs: 1},
		"datapath netdev":  {VMs: 1, Backend: NeutronBackend, Datapath: system},
	} {
		_, err := spec.complete()
		if err == nil || !strings.Contains(err.Error(), strings.TrimSpace(field)) {
			t.Errorf("%+v: error %v does not name the field %s", spec, err, field)
		}
	}
}

func TestMerge(t *testing.T) {
	have := Spec{
		Name: "a", ControlPlanes: 1, Workers: 2, Family: Dual, CNI: Bridge, Backend: OVSBackend, Datapath: "netdev", Services: KubeProxyServices,
		ProxyMode: ProxyIPTables,
	}
	dir := t.TempDir()
	if _, err := merge(filepath.Join(dir, "none"), Spec{Name: "b", Workers: -1}); err == nil {
		t.Error("a new sandbox with -1 workers")
	}
	if err := have.write(dir); err != nil {
		t.Fatal(err)
	}
	more := have
	more.Workers = 3
	other := have
	other.ProxyMode = ProxyNFTables
	zones := have
	zones.Zones = 3
	auto := have
	auto.Datapath = "auto"
	for name, test := range map[string]struct {
		want, merged Spec
		fault        string
	}{
		"same":                {want: have, merged: have},
		"more workers":        {want: more, merged: more},
		"other services":      {want: Spec{Name: "a", ProxyMode: ProxyNFTables}, merged: other},
		"zones":               {want: zones, merged: zones},
		"any datapath":        {want: auto, merged: have},
		"nothing said":        {want: Spec{Name: "a"}, merged: have},
		"fewer workers":       {want: Spec{Name: "a", Workers: 1, Family: Dual, CNI: Bridge, Datapath: "netdev"}, fault: "workers"},
		"more control planes": {want: Spec{Name: "a", ControlPlanes: 3}, fault: "control planes"},
		"another family":      {want: Spec{Name: "a", Workers: 2, Family: IPv4, CNI: Bridge, Datapath: "netdev"}, fault: "IP family"},
		"another network":     {want: Spec{Name: "a", Workers: 2, Family: Dual, CNI: NoCNI, Datapath: "netdev"}, fault: "CNI"},
		"another backend":     {want: Spec{Name: "a", Backend: OVNBackend}, fault: "backend"},
		"no backend":          {want: Spec{Name: "a", Backend: "nova"}, fault: "want ovs, ovn or neutron"},
		"another switch":      {want: Spec{Name: "a", Workers: 2, Family: Dual, CNI: Bridge, Datapath: "system"}, fault: "datapath"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := merge(dir, test.want)
			if test.fault != "" {
				if err == nil || !strings.Contains(err.Error(), test.fault) {
					t.Errorf("error %v does not name %s", err, test.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.merged, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Machines of OpenStack come, but do not go, and stay on their hypervisors.
func TestMergeVMs(t *testing.T) {
	for name, test := range map[string]struct {
		have, want, merged Spec
		fault              string
	}{
		"the first":           {have: Spec{Workers: 2}, want: Spec{VMs: 1}, merged: Spec{Workers: 2, VMs: 1}},
		"more":                {have: Spec{Workers: 2, VMs: 1}, want: Spec{VMs: 3}, merged: Spec{Workers: 2, VMs: 3}},
		"nothing said":        {have: Spec{Workers: 2, VMs: 3}, merged: Spec{Workers: 2, VMs: 3}},
		"fewer":               {have: Spec{Workers: 2, VMs: 2}, want: Spec{VMs: 1}, fault: "2 VMs"},
		"more workers":        {have: Spec{Workers: 2, VMs: 2}, want: Spec{Workers: 3}, merged: Spec{Workers: 3, VMs: 2}},
		"VMs that would move": {have: Spec{Workers: 2, VMs: 3}, want: Spec{Workers: 3}, fault: "3 VMs"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			have, err := Spec{
				Workers: test.have.Workers, VMs: test.have.VMs, Backend: NeutronBackend, Datapath: userland,
			}.complete()
			if err != nil {
				t.Fatal(err)
			}
			if err := have.write(dir); err != nil {
				t.Fatal(err)
			}
			got, err := merge(dir, test.want)
			if test.fault != "" {
				if err == nil || !strings.Contains(err.Error(), test.fault) {
					t.Errorf("error %v does not name %s", err, test.fault)
				}
				return
			}
			if err != nil || got.Workers != test.merged.Workers || got.VMs != test.merged.VMs {
				t.Errorf("%d workers and %d VMs, error %v; want %d and %d",
					got.Workers, got.VMs, err, test.merged.Workers, test.merged.VMs)
			}
		})
	}
}
