// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/podnets"
	"coelan.io/coelan/test/lab"
)

// How many Networks there are, and on how many of them each node has a port.
const (
	allNetworks  = 1000
	usedNetworks = 200
)

// tenantSubnets are those of all Networks, each in a Router of its own.
var tenantSubnets = []v1alpha1.Subnet{{CIDR: "10.10.0.0/16"}, {CIDR: "fd00:10::/64"}}

// scale is a small cluster that gets many Networks.
type scale struct {
	*lab.Lab
	node     *lab.Node
	networks int
	pods     int
}

// measureNetworks gives a cluster of two nodes very many Networks, and ports on some of them, and
// looks at what that costs the first node: flows, memory, a change, a start. The Networks come as
// the controller admits them. A change is compared with one in a cluster of few Networks and, with
// ports, with one on a node that has as many ports on a single Network.
func measureNetworks(ctx context.Context) ([]Result, error) {
	one, err := onOneNetwork(ctx)
	if err != nil {
		return nil, err
	}
	l, err := lab.Start(ctx, lab.Options{PodCIDRs: wide})
	defer l.Close()
	if err != nil {
		return nil, err
	}
	s := &scale{Lab: l, node: l.Nodes[0]}
	results, err := s.look(ctx, "0", nil)
	if err != nil {
		return nil, err
	}
	few, err := s.changes(ctx)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	for s.networks < allNetworks {
		s.addNetwork()
	}
	last, err := s.podOn(ctx, s.node, s.networks-1)
	if err != nil {
		return nil, err
	}
	results = append(results, absolute("networks-learn-1000", "ms", milliseconds(time.Since(start))))
	if err := last.Delete(ctx); err != nil {
		return nil, err
	}
	if results, err = s.look(ctx, "1000", results); err != nil {
		return nil, err
	}
	if results, err = s.changesBeside(ctx, few, "1000", results); err != nil {
		return nil, err
	}
	if err := s.use(ctx); err != nil {
		return nil, err
	}
	if results, err = s.look(ctx, "1000-200", results); err != nil {
		return nil, err
	}
	if results, err = s.changesBeside(ctx, one, "1000-200", results); err != nil {
		return nil, err
	}
	return s.restart(ctx, results)
}

// look counts the flows and reads the memory of the node's agent.
func (s *scale) look(ctx context.Context, name string, results []Result) ([]Result, error) {
	flows, err := flowCount(ctx, s.node)
	if err != nil {
		return nil, err
	}
	rss, err := residentMiB(s.node.AgentPID())
	return append(results, absolute("networks-flows-"+name, "flows", flows),
		absolute("networks-rss-"+name, "MiB", rss)), err
}

// flowCount is how many flows a node's bridge has.
func flowCount(ctx context.Context, n *lab.Node) (float64, error) {
	out, err := n.OVS.Ofctl(ctx, "dump-aggregate", "br-int")
	if err != nil {
		return 0, err
	}
	m := regexp.MustCompile(`flow_count=(\d+)`).FindStringSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("dump-aggregate printed no flow_count: %q", out)
	}
	return strconv.ParseFloat(m[1], 64)
}

func networkName(i int) string { return fmt.Sprintf("tenant-%d", i) }

func (s *scale) addNetwork() {
	s.API.AddNetwork(networkName(s.networks), v1alpha1.NetworkSpec{Subnets: tenantSubnets})
	s.networks++
}

// podOn makes a pod with a second interface, on one of the Networks.
func (s *scale) podOn(ctx context.Context, n *lab.Node, network int) (*lab.Pod, error) {
	s.pods++
	return n.AddPodAs(ctx, lab.PodSpec{Name: fmt.Sprintf("pod-%d", s.pods), Annotations: map[string]string{
		podnets.AnnotationNFNNetwork: fmt.Sprintf(`{"type": "ovn4nfv", "interface": [{"name": %q, "interface": "net1"}]}`, networkName(network)),
	}})
}

// use makes a pod on each of the first Networks, on both nodes. What the second node has to do
// is over then: its blocks and Ports are in the API. It ends, so as not to share the machine
// with what is measured.
func (s *scale) use(ctx context.Context) error {
	other := s.Nodes[1]
	for _, n := range []*lab.Node{other, s.node} {
		for i := range usedNetworks {
			if _, err := s.podOn(ctx, n, i); err != nil {
				return err
			}
		}
		if n == other {
			n.KillAgent()
			n.OVS.StopVswitchd()
		}
	}
	return nil
}

// change is how long it takes, in milliseconds at the median, until a new Network has its first
// pod, and until one that has a pod on the node has another one.
type change struct{ network, pod float64 }

const changeRounds = 20

// changes leaves Networks behind, and no pods.
func (s *scale) changes(ctx context.Context) (change, error) {
	var network, pod []float64
	for range changeRounds {
		start := time.Now()
		s.addNetwork()
		first, err := s.podOn(ctx, s.node, s.networks-1)
		if err != nil {
			return change{}, err
		}
		then := time.Now()
		second, err := s.podOn(ctx, s.node, s.networks-1)
		if err != nil {
			return change{}, err
		}
		network, pod = append(network, milliseconds(then.Sub(start))), append(pod, milliseconds(time.Since(then)))
		for _, p := range []*lab.Pod{first, second} {
			if err := p.Delete(ctx); err != nil {
				return change{}, err
			}
		}
	}
	return change{percentile(network, 0.5), percentile(pod, 0.5)}, nil
}

// onOneNetwork is how long changes take on a node with as many ports on a single Network.
func onOneNetwork(ctx context.Context) (change, error) {
	l, err := lab.Start(ctx, lab.Options{Nodes: 1, PodCIDRs: wide})
	defer l.Close()
	if err != nil {
		return change{}, err
	}
	s := &scale{Lab: l, node: l.Nodes[0]}
	s.addNetwork()
	for range usedNetworks {
		if _, err := s.podOn(ctx, s.node, 0); err != nil {
			return change{}, err
		}
	}
	return s.changes(ctx)
}

// changesBeside compares changes with those of another cluster.
func (s *scale) changesBeside(ctx context.Context, few change, name string, results []Result) ([]Result, error) {
	many, err := s.changes(ctx)
	return append(results,
		beside("networks-new-"+name, "ms", many.network, few.network),
		beside("networks-pod-"+name, "ms", many.pod, few.pod)), err
}

// restart starts the agent again on a switch without flows.
func (s *scale) restart(ctx context.Context, results []Result) ([]Result, error) {
	s.node.KillAgent()
	if _, err := s.node.OVS.Ofctl(ctx, "del-flows", "br-int"); err != nil {
		return nil, err
	}
	start := time.Now()
	if err := s.node.StartAgent(ctx); err != nil {
		return nil, err
	}
	took := milliseconds(time.Since(start))
	return append(results, absolute("networks-start-1000-200", "ms", took)), s.node.Check(ctx)
}
