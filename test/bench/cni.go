// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/containernetworking/cni/libcni"

	"coelan.io/coelan/test/lab"
)

// cniRounds is how many pods each plugin plugs in and out.
const cniRounds = 200

// referenceNetwork is the reference plugins' own: a bridge, addresses by host-local.
const referenceNetwork = `{
  "cniVersion": "1.0.0", "name": "reference",
  "plugins": [{
    "type": "bridge", "bridge": "cni0", "isGateway": true,
    "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "10.99.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]}
  }]
}`

// measureCNI plugs one pod after another in and out, by Coelan and by the
// reference plugins in turns, and compares how long the calls take.
func measureCNI(ctx context.Context) ([]Result, error) {
	l, err := lab.Start(ctx, lab.Options{Nodes: 1})
	defer l.Close()
	if err != nil {
		return nil, err
	}
	n := l.Nodes[0]
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
	var add, del [2][]float64
	for i := range cniRounds {
		for who, network := range []*libcni.NetworkConfigList{ours, reference} {
			a, d, err := addDel(ctx, n, network, fmt.Sprintf("bench-%d-%d", who, i))
			if err != nil {
				return nil, err
			}
			add[who], del[who] = append(add[who], a), append(del[who], d)
		}
	}
	return []Result{
		compared("cni-add-p50", "ms", percentile(add[0], 0.5), percentile(add[1], 0.5), 2, 1, lower),
		compared("cni-add-p99", "ms", percentile(add[0], 0.99), percentile(add[1], 0.99), 2, 1, lower),
		compared("cni-del-p50", "ms", percentile(del[0], 0.5), percentile(del[1], 0.5), 2, 1, lower),
	}, nil
}

// addDel plugs one pod in and out and returns the milliseconds of both calls.
func addDel(ctx context.Context, n *lab.Node, network *libcni.NetworkConfigList, name string) (add, del float64, err error) {
	p, err := n.NewPod(name)
	if err != nil {
		return 0, 0, err
	}
	defer p.End()
	start := time.Now()
	if _, err := n.CNI().AddNetworkList(ctx, network, p.Runtime()); err != nil {
		return 0, 0, err
	}
	added := time.Now()
	if err := n.CNI().DelNetworkList(ctx, network, p.Runtime()); err != nil {
		return 0, 0, err
	}
	return milliseconds(added.Sub(start)), milliseconds(time.Since(added)), nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
