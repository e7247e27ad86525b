// SPDX-License-Identifier: Apache-2.0

//go:build integration

package cni

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"coelan.io/coelan/internal/cni/wire"
)

// Interfaces that the reference plugins make, in a pod of their own or beside another interface,
// have addresses of the node's podCIDRs, which no pod has too, and give them back.
func TestAddressesForReferencePlugins(t *testing.T) {
	n := newDelegatingNode(t)
	n.must(os.Symlink("coelan-cni", filepath.Join(filepath.Dir(n.plugin), wire.IPAMPlugin)))
	a := n.newPod("pod-a")
	n.must(n.add(a))
	for i, tt := range []struct {
		plugin, ifName string
		pod            *pod
	}{
		{`"type":"bridge","bridge":"side0","isGateway":false`, "net1", a},
		{`"type":"ptp"`, "eth0", n.newPod("pod-ptp")},
	} {
		t.Run(tt.plugin, func(t *testing.T) {
			list := n.config(fmt.Sprintf(`{"cniVersion":"1.0.0","name":"side","plugins":[{%s,"ipam":{"type":"ipam-odl","socket":%q}}]}`,
				tt.plugin, n.socket()))
			side := *tt.pod.rt
			side.IfName = tt.ifName
			var result *types100.Result
			n.must(n.ovs.Do(func() error {
				r, err := n.runtime.AddNetworkList(t.Context(), list, &side)
				if err == nil {
					result, err = types100.NewResultFromResult(r)
				}
				return err
			}))
			want := fmt.Sprintf("[10.244.1.%d/24 fd00:10:244:1::%d/64]", 3+2*i, 3+2*i)
			if leases := n.store.Leases(); len(leases) != 1 || fmt.Sprint(leases[0].Addresses) != want || len(n.store.List()) != 1 {
				t.Errorf("leases %v, want %s; attachments %v", leases, want, n.store.List())
			}
			if got := fmt.Sprint("[", result.IPs[0].Address.String(), " ", result.IPs[1].Address.String(), "]"); got != want {
				t.Errorf("result %s, want %s", got, want)
			}
			n.must(n.ovs.Do(func() error { return n.runtime.CheckNetworkList(t.Context(), list, &side) }))
			b := n.newPod(fmt.Sprint("pod-b", i))
			n.must(n.add(b))
			if got := b.ip(0); got != fmt.Sprintf("10.244.1.%d", 4+2*i) {
				t.Errorf("the next pod has %s", got)
			}
			n.must(n.del(b))
			for range 2 {
				n.must(n.ovs.Do(func() error { return n.runtime.DelNetworkList(t.Context(), list, &side) }))
			}
			if left := n.store.Leases(); len(left) != 0 {
				t.Errorf("not given back: %v", left)
			}
		})
	}
	n.must(n.del(a))
	n.wantNothing()
}
