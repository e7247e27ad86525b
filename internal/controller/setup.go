// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"coelan.io/coelan/internal/controller/loadbalancers"
	"coelan.io/coelan/internal/controller/networks"
	"coelan.io/coelan/internal/controller/nodeconfigs"
	"coelan.io/coelan/internal/controller/policies"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/heartbeat"
)

// setup adds to a manager all that the controller decides and serves.
func setup(
	m manager.Manager, o Options, distribution *policies.Distribution, progress *policies.Progress,
	monitor *heartbeat.Monitor,
) (*policies.Feed, error) {
	a := &reconcile.Access{Client: m.GetClient(), Live: m.GetAPIReader(),
		Events: m.GetEventRecorderFor(reconcile.EventSource)}
	err := networks.Setup(m, a, monitor, networks.Options{
		Mapping: o.Mapping, VNIs: o.VNIs, UsageInterval: o.UsageInterval, Refusals: distribution.Hub,
		RefusedInterval: o.PolicyInterval,
	})
	if err != nil {
		return nil, fmt.Errorf("networks: %w", err)
	}
	err = loadbalancers.Setup(m, a, monitor, loadbalancers.Options{
		Mapping: o.Mapping, ExternalIPs: o.ExternalIPs, UsageInterval: o.UsageInterval,
	})
	if err != nil {
		return nil, fmt.Errorf("load balancers: %w", err)
	}
	if err := nodeconfigs.Setup(m, a, monitor, o.Log, distribution.Hub); err != nil {
		return nil, fmt.Errorf("node configurations: %w", err)
	}
	p, err := policies.Setup(m, a, monitor, policies.Options{
		Log: o.Log, Distribution: distribution, Progress: progress, Namespace: o.LeaderElectionNamespace,
		BindAddress: o.PolicyBindAddress, TokenFile: o.PolicyTokenFile, Interval: o.PolicyInterval, Socket: o.Socket,
	})
	if err != nil {
		return nil, fmt.Errorf("policies: %w", err)
	}
	return p, nil
}
