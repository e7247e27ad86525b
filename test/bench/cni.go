// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/containernetworking/cni/libcni"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/podnets"
	"coelan.io/coelan/test/lab"
)

// cniRounds is how many pods are plugged in and out in each way.
const cniRounds = 200

// referenceNetwork is the reference plugins' own: a bridge, addresses by host-local.
const referenceNetwork = `{
  "cniVersion": "1.0.0", "name": "reference",
  "plugins": [{
    "type": "bridge", "bridge": "cni0", "isGateway": true,
    "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "10.99.0.0/16"}]],
      "routes": [{"dst": "0.0.0.0/0"}]}
  }]
}`

// sideNetwork is where the second interfaces are.
const sideNetwork = "side"

// asksSide is the annotation of a pod that wants an interface there, in the ADD of its eth0.
var asksSide = map[string]string{
	podnets.AnnotationNFNNetwork: `{"type": "ovn4nfv", "interface": [{"name": "` + sideNetwork +
		`", "interface": "net1"}]}`,
}

// plug is one way to plug a pod in.
type plug struct {
	name        string
	network     *libcni.NetworkConfigList
	ifName      string
	annotations map[string]string
}

// measureCNI plugs one pod after another in and out, in several ways by turns, and compares how
// long the calls take: by Coelan and by the reference plugins; on a secondary Network, as Multus
// asks for it, and on the default one; with two interfaces and with one.
func measureCNI(ctx context.Context) ([]Result, error) {
	l, err := lab.Start(ctx, lab.Options{Nodes: 1})
	defer l.Close()
	if err != nil {
		return nil, err
	}
	n := l.Nodes[0]
	l.API.AddNetwork(sideNetwork, v1alpha1.NetworkSpec{Subnets: tenantSubnets})
	// A pod that stays keeps the Network's block on the node.
	if _, err := n.AddPodAs(ctx, lab.PodSpec{Name: "stays", Annotations: asksSide}); err != nil {
		return nil, err
	}
	plugs, err := plugsOf(n)
	if err != nil {
		return nil, err
	}
	add, del := map[string][]float64{}, map[string][]float64{}
	for i := range cniRounds {
		for _, p := range plugs {
			a, d, err := p.addDel(ctx, n, fmt.Sprintf("bench-%s-%d", p.name, i))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.name, err)
			}
			add[p.name], del[p.name] = append(add[p.name], a), append(del[p.name], d)
		}
	}
	median := func(of map[string][]float64, name string) float64 { return percentile(of[name], 0.5) }
	return []Result{
		compared("cni-add-p50", "ms", median(add, "default"), median(add, "reference"), 2, 1, lower),
		compared("cni-add-p99", "ms", percentile(add["default"], 0.99), percentile(add["reference"], 0.99), 2, 1,
			lower),
		compared("cni-del-p50", "ms", median(del, "default"), median(del, "reference"), 2, 1, lower),
		compared("cni-add-secondary", "ms", median(add, "secondary"), median(add, "default"), 1.5, 1, lower),
		beside("cni-add-two", "ms", median(add, "two"), median(add, "default")),
	}, nil
}

// plugsOf are the ways of a node.
func plugsOf(n *lab.Node) ([]plug, error) {
	ours, err := n.Network()
	if err != nil {
		return nil, err
	}
	// Without portmap, which only passes on what it is given here.
	ours.Plugins = ours.Plugins[:1]
	reference, err := libcni.NetworkConfFromBytes(fmt.Appendf(nil, referenceNetwork, n.Dir()+"/host-local"))
	if err != nil {
		return nil, err
	}
	var plugin map[string]any
	if err := json.Unmarshal(ours.Plugins[0].Bytes, &plugin); err != nil {
		return nil, err
	}
	plugin["network"] = sideNetwork
	text, err := json.Marshal(map[string]any{"cniVersion": ours.CNIVersion, "name": sideNetwork,
		"plugins": []any{plugin}})
	if err != nil {
		return nil, err
	}
	secondary, err := libcni.NetworkConfFromBytes(text)
	return []plug{
		{"default", ours, "eth0", nil}, {"reference", reference, "eth0", nil},
		{"secondary", secondary, "net1", nil}, {"two", ours, "eth0", asksSide},
	}, err
}

// addDel plugs one pod in and out and returns the milliseconds of both calls.
func (p plug) addDel(ctx context.Context, n *lab.Node, name string) (add, del float64, err error) {
	pod, err := n.NewPodAs(lab.PodSpec{Name: name, Annotations: p.annotations})
	if err != nil {
		return 0, 0, err
	}
	defer pod.End()
	conf := pod.Runtime()
	conf.IfName = p.ifName
	start := time.Now()
	if _, err := n.CNI().AddNetworkList(ctx, p.network, conf); err != nil {
		return 0, 0, err
	}
	added := time.Now()
	if err := n.CNI().DelNetworkList(ctx, p.network, conf); err != nil {
		return 0, 0, err
	}
	return milliseconds(added.Sub(start)), milliseconds(time.Since(added)), nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
