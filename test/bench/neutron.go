// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"coelan.io/coelan/internal/backend/neutron/compile"
	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/backend/neutron/resource"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/intenttest"
	"coelan.io/coelan/internal/neutrontest"
	"coelan.io/coelan/test/lab"
)

// neutronRounds are those of one pod that comes and goes with each backend, one every neutronPace;
// neutronCrowd is how many come at once. An agent makes five requests of the API server for such a
// pod, and 50 in a second: pods that came faster would wait for that limit.
const (
	neutronRounds = 60
	neutronPace   = 250 * time.Millisecond
	neutronCrowd  = 200
)

// neutronWaves are how often pods of a node come at once and go again, and neutronWave is how many.
const (
	neutronWaves = 10
	neutronWave  = 20
)

// The policies of which rules are counted, with as many pods each, against one pod each.
const (
	neutronPolicies = 500
	neutronMembers  = 50
)

// How many calls of Neutron's API a pod may take, and how many times as many rules 50 pods of each
// policy may need as one.
const (
	neutronCallsBar, neutronCallsAim = 0.2, 0.1
	neutronRulesBar, neutronRulesAim = 1, 1
)

// How many times as long as with the backend ovn a pod may take, and all of a crowd as Neutron
// itself for as many ports.
const (
	neutronAddBar, neutronAddAim     = 1.2, 1
	neutronCrowdBar, neutronCrowdAim = 1.3, 1
)

// neutronCrowdTimeout bounds the wait for a crowd.
const neutronCrowdTimeout = 15 * time.Minute

// measureNeutron compares the backend neutron with the backend ovn, and with Neutron alone. It
// needs the Debian packages of hack/packages-neutron.txt.
func measureNeutron(ctx context.Context) ([]Result, error) {
	with, err := lab.Start(ctx, lab.Options{Nodes: 1, Neutron: true})
	defer with.Close()
	if err != nil {
		return nil, err
	}
	results, err := measureNeutronPods(ctx, with)
	if err != nil {
		return nil, fmt.Errorf("pods: %w", err)
	}
	calls, err := measureNeutronCalls(ctx, with)
	if err != nil {
		return nil, fmt.Errorf("pods that come and go: %w", err)
	}
	crowd, err := measureNeutronCrowd(ctx, with)
	if err != nil {
		return nil, fmt.Errorf("crowd: %w", err)
	}
	return append(results, calls, crowd, measureNeutronRules()), nil
}

// measureNeutronPods has pods come and go by turns, so that ports are ready.
func measureNeutronPods(ctx context.Context, with *lab.Lab) ([]Result, error) {
	reference, err := lab.Start(ctx, lab.Options{Nodes: 1, OVN: true})
	defer reference.Close()
	if err != nil {
		return nil, err
	}
	took := map[*lab.Lab][]float64{}
	pace := time.NewTicker(neutronPace)
	defer pace.Stop()
	for i := range neutronRounds {
		select {
		case <-pace.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		for _, l := range []*lab.Lab{with, reference} {
			began := time.Now()
			p, err := l.Nodes[0].AddPod(ctx, fmt.Sprint("bench-", i))
			if err != nil {
				return nil, err
			}
			took[l] = append(took[l], milliseconds(time.Since(began)))
			if err := p.Delete(ctx); err != nil {
				return nil, err
			}
		}
	}
	return []Result{
		compared("neutron-add-p50", "ms", percentile(took[with], 0.5), percentile(took[reference], 0.5),
			neutronAddBar, neutronAddAim, lower),
		beside("neutron-add-p99", "ms", percentile(took[with], 0.99), percentile(took[reference], 0.99)),
	}, nil
}

// measureNeutronCrowd has pods come at once, each of them tried again as a kubelet does. The
// reference is Neutron's own time for as many ports of the same kind, which one call makes.
func measureNeutronCrowd(ctx context.Context, with *lab.Lab) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, neutronCrowdTimeout)
	defer cancel()
	reference, err := bulk(ctx, with.Neutron.Endpoint, neutronCrowd)
	if err != nil {
		return Result{}, err
	}
	began := time.Now()
	if _, err := together(ctx, with.Nodes[0], "crowd", neutronCrowd); err != nil {
		return Result{}, err
	}
	took := time.Since(began)
	return compared("neutron-crowd", "s", took.Seconds(), reference.Seconds(), neutronCrowdBar, neutronCrowdAim,
		lower), nil
}

// measureNeutronCalls has as many pods come at once as go afterwards, again and again, and counts
// the calls that the controller makes meanwhile, those by which it reads all each minute included.
// The first wave, which finds few ports, is not counted.
func measureNeutronCalls(ctx context.Context, with *lab.Lab) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, neutronCrowdTimeout)
	defer cancel()
	var before int64
	for i := range neutronWaves + 1 {
		if i == 1 {
			before = with.Neutron.Calls()
		}
		pods, err := together(ctx, with.Nodes[0], fmt.Sprint("wave-", i), neutronWave)
		if err != nil {
			return Result{}, err
		}
		for _, p := range pods {
			if err := p.Delete(ctx); err != nil {
				return Result{}, err
			}
		}
	}
	calls := float64(with.Neutron.Calls() - before)
	return absolute("neutron-calls-per-pod", "calls", calls/(neutronWaves*neutronWave)).
		atMost(neutronCallsBar, neutronCallsAim), nil
}

// measureNeutronRules counts the rules of security groups that policies with many pods each need,
// against those with one pod each.
func measureNeutronRules() Result {
	rules := func(pods int) float64 {
		set := compile.Compile(neutronCluster(pods), compile.Options{})
		return float64(len(set.All(resource.SecurityGroupRule)))
	}
	return compared("neutron-rules", "rules", rules(neutronMembers), rules(1), neutronRulesBar, neutronRulesAim, lower)
}

// neutronCluster is the intent of a cluster with policies that each are for as many pods, and let
// in as many others.
func neutronCluster(pods int) *intent.State {
	o := intent.Objects{
		Local:   intent.Local{PolicyMode: intent.EnforcedPolicies},
		Routers: []intent.Router{{Name: intent.DefaultRouterName, ID: 1}},
		Networks: []intent.Network{{
			Name: intent.DefaultNetworkName, ID: intent.DefaultNetwork, Router: intent.DefaultRouterName,
		}},
	}
	for i := range neutronPolicies {
		o.Rules = append(o.Rules, ovnRule(i))
		for j := range pods {
			p := ovnPort(i, j)
			o.Ports, o.Subjects = append(o.Ports, p), append(o.Subjects, ovnSubject(p, i))
			o.Peers = append(o.Peers, ovnPeer((i+1)%neutronPolicies, p))
		}
		prefix := netip.PrefixFrom(nth(netip.MustParseAddr("10.128.0.0"), i*256), 24)
		o.Nodes = append(o.Nodes, intent.Node{
			Name: fmt.Sprint("n", i), MTU: 1400,
			Subnets: []intent.Subnet{{
				Network: intent.DefaultNetworkName, Prefix: prefix, Gateway: prefix.Addr().Next(),
			}},
		})
	}
	return intenttest.State(o)
}

// together has pods come at once, each of them tried again as a kubelet does, and returns when all
// are plugged in.
func together(ctx context.Context, n *lab.Node, name string, count int) ([]*lab.Pod, error) {
	pods, failures := make([]*lab.Pod, count), make([]error, count)
	var all sync.WaitGroup
	for i := range count {
		all.Go(func() { pods[i], failures[i] = insist(ctx, n, fmt.Sprint(name, "-", i)) })
	}
	all.Wait()
	return pods, errors.Join(failures...)
}

// insist plugs a pod in, again after each failure.
func insist(ctx context.Context, n *lab.Node, name string) (*lab.Pod, error) {
	p, err := n.NewPod(name)
	if err != nil {
		return nil, err
	}
	for {
		err := p.Add(ctx)
		if err == nil || ctx.Err() != nil {
			return p, err
		}
	}
}

// bulk makes as many ports by one call on a network of their own, and returns how long that took.
// They are as those of pods: with addresses of both families, on a node, in two security groups.
// They are deleted afterwards, since Neutron takes longer for a port the more there are.
func bulk(ctx context.Context, endpoint string, ports int) (time.Duration, error) {
	network, err := create(ctx, endpoint, "networks", "network", `"name": "bulk"`)
	if err != nil {
		return 0, err
	}
	var made []string
	for _, more := range [][2]string{
		{"subnet", fmt.Sprintf(`"network_id": %q, "ip_version": 4, "cidr": "10.230.0.0/16"`, network)},
		{"subnet", fmt.Sprintf(`"network_id": %q, "ip_version": 6, "cidr": "fd00:230::/64"`, network)},
		{"security_group", `"name": "bulk-in"`}, {"security_group", `"name": "bulk-out"`},
	} {
		id, err := create(ctx, endpoint, strings.ReplaceAll(more[0], "_", "-")+"s", more[0], more[1])
		if err != nil {
			return 0, err
		}
		made = append(made, id)
	}
	list := make([]string, ports)
	for i := range list {
		list[i] = fmt.Sprintf(`{"project_id": %q, "network_id": %q, "device_owner": "compute:kuryr", "device_id": "n1",
			"binding:host_id": "n1", "security_groups": [%q, %q], "fixed_ips": [
			{"subnet_id": %q, "ip_address": "10.230.1.%d"}, {"subnet_id": %q, "ip_address": "fd00:230::1:%x"}]}`,
			neutrontest.Project, network, made[2], made[3], made[0], i+1, made[1], i+1)
	}
	began := time.Now()
	answer, err := askNeutron(ctx, http.MethodPost, endpoint+"v2.0/ports", `{"ports": [`+strings.Join(list, ", ")+`]}`)
	took := time.Since(began)
	if err != nil {
		return 0, err
	}
	all, _ := answer["ports"].([]any)
	for _, item := range all {
		port, _ := item.(map[string]any)
		one := fmt.Sprint(endpoint, "v2.0/ports/", port["id"])
		if _, err := askNeutron(ctx, http.MethodDelete, one, ""); err != nil {
			return 0, err
		}
	}
	return took, nil
}

// create makes a resource of the tests' project with attributes, and returns its id.
func create(ctx context.Context, endpoint, collection, name, attributes string) (string, error) {
	answer, err := askNeutron(ctx, http.MethodPost, endpoint+"v2.0/"+collection,
		fmt.Sprintf(`{%q: {"project_id": %q, %s}}`, name, neutrontest.Project, attributes))
	resource, _ := answer[name].(map[string]any)
	id, _ := resource["id"].(string)
	return id, err
}

// askNeutron makes a call of Neutron's API.
func askNeutron(ctx context.Context, method, url, body string) (map[string]any, error) {
	status, answer, err := neutronfake.Call(ctx, method, url, body)
	if err == nil && status >= http.StatusBadRequest {
		err = fmt.Errorf("status %d, %v", status, answer)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, url, err)
	}
	return answer, nil
}
