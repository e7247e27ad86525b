// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"coelan.io/coelan/internal/backend/neutron/neutronfake"
	"coelan.io/coelan/internal/neutrontest"
	"coelan.io/coelan/test/lab"
)

// neutronRounds are those of one pod that comes and goes with each backend; neutronCrowd is how
// many come at once.
const (
	neutronRounds = 60
	neutronCrowd  = 200
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
	crowd, err := measureNeutronCrowd(ctx, with)
	if err != nil {
		return nil, fmt.Errorf("crowd: %w", err)
	}
	return append(results, crowd...), nil
}

// measureNeutronPods has pods come and go by turns, so that ports are ready.
func measureNeutronPods(ctx context.Context, with *lab.Lab) ([]Result, error) {
	reference, err := lab.Start(ctx, lab.Options{Nodes: 1, OVN: true})
	defer reference.Close()
	if err != nil {
		return nil, err
	}
	took := map[*lab.Lab][]float64{}
	for i := range neutronRounds {
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
// reference is Neutron's own time for as many ports, which one call makes.
func measureNeutronCrowd(ctx context.Context, with *lab.Lab) ([]Result, error) {
	ctx, cancel := context.WithTimeout(ctx, neutronCrowdTimeout)
	defer cancel()
	reference, err := bulk(ctx, with.Neutron.Endpoint, neutronCrowd)
	if err != nil {
		return nil, err
	}
	failures := make([]error, neutronCrowd)
	var all sync.WaitGroup
	began := time.Now()
	for i := range neutronCrowd {
		all.Go(func() { failures[i] = insist(ctx, with.Nodes[0], fmt.Sprint("crowd-", i)) })
	}
	all.Wait()
	took := time.Since(began)
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}
	return []Result{
		compared("neutron-crowd", "s", took.Seconds(), reference.Seconds(), neutronCrowdBar, neutronCrowdAim, lower),
	}, nil
}

// insist plugs a pod in, again after each failure.
func insist(ctx context.Context, n *lab.Node, name string) error {
	p, err := n.NewPod(name)
	if err != nil {
		return err
	}
	for {
		err := p.Add(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// bulk makes as many ports by one call on a network of their own, and returns how long that took.
func bulk(ctx context.Context, endpoint string, ports int) (time.Duration, error) {
	network, err := create(ctx, endpoint, "networks", "network",
		fmt.Sprintf(`{"network": {"project_id": %q, "name": "bulk"}}`, neutrontest.Project))
	if err != nil {
		return 0, err
	}
	id, _ := network["id"].(string)
	if _, err := create(ctx, endpoint, "subnets", "subnet", fmt.Sprintf(
		`{"subnet": {"project_id": %q, "network_id": %q, "ip_version": 4, "cidr": "10.230.0.0/16"}}`,
		neutrontest.Project, id)); err != nil {
		return 0, err
	}
	one := fmt.Sprintf(`{"project_id": %q, "network_id": %q}`, neutrontest.Project, id)
	body := fmt.Sprintf(`{"ports": [%s]}`, strings.TrimSuffix(strings.Repeat(one+", ", ports), ", "))
	began := time.Now()
	_, err = create(ctx, endpoint, "ports", "", body)
	return time.Since(began), err
}

// create makes what a body asks for, and returns the resource of that name in the answer.
func create(ctx context.Context, endpoint, collection, name, body string) (map[string]any, error) {
	status, answer, err := neutronfake.Call(ctx, http.MethodPost, endpoint+"v2.0/"+collection, body)
	if err != nil || status != http.StatusCreated {
		return nil, fmt.Errorf("POST %s: status %d, %v: %w", collection, status, answer, err)
	}
	resource, _ := answer[name].(map[string]any)
	return resource, nil
}
