// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/controller/clusterintent"
	"coelan.io/coelan/internal/controller/loadbalancers"
	"coelan.io/coelan/internal/controller/networks"
	"coelan.io/coelan/internal/controller/neutron"
	"coelan.io/coelan/internal/controller/nodeconfigs"
	"coelan.io/coelan/internal/controller/ovn"
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
	policyOptions := policies.Options{
		Log: o.Log, Distribution: distribution, Progress: progress, Namespace: o.LeaderElectionNamespace,
		BindAddress: o.PolicyBindAddress, TokenFile: o.PolicyTokenFile, Interval: o.PolicyInterval, Socket: o.Socket,
	}
	// Nothing asks these before the manager starts.
	aboutOVN, aboutNeutron := &struct{ *ovn.Runner }{}, &struct{ *neutron.Runner }{}
	if o.OVN != nil || o.Neutron != nil {
		policyOptions.NodeAddress = names.ManagementAddress
	}
	if o.OVN != nil {
		policyOptions.OVN = aboutOVN
	}
	if o.Neutron != nil {
		policyOptions.Neutron = aboutNeutron
	}
	p, err := policies.Setup(m, a, monitor, policyOptions)
	if err != nil {
		return nil, fmt.Errorf("policies: %w", err)
	}
	if o.OVN != nil {
		if aboutOVN.Runner, err = setupOVN(m, a, o, distribution, p, monitor); err != nil {
			return nil, fmt.Errorf("backend ovn: %w", err)
		}
	}
	if o.Neutron != nil {
		if aboutNeutron.Runner, err = setupNeutron(m, a, o, distribution, p, monitor); err != nil {
			return nil, fmt.Errorf("backend neutron: %w", err)
		}
	}
	err = networks.Setup(m, a, monitor, networks.Options{
		Mapping: o.Mapping, Pools: o.NamespaceSubnets, Taken: o.taken(), ServiceCIDRs: o.serviceCIDRs(), VNIs: o.VNIs,
		UsageInterval: o.UsageInterval, Refusals: distribution.Hub, RefusedInterval: o.PolicyInterval,
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
	return p, nil
}

// setupOVN adds what programs OVN.
func setupOVN(
	m manager.Manager, a *reconcile.Access, o Options, distribution *policies.Distribution, feed *policies.Feed,
	monitor *heartbeat.Monitor,
) (*ovn.Runner, error) {
	source := clusterintent.New(clusterintent.Options{
		Log: o.Log, Informers: m.GetCache(), Monitor: monitor,
		Policies: distribution.Engine, PoliciesKnown: feed.Known(), PoliciesProgressed: feed.Progressed,
		Settings: clusterintent.Settings{
			Mapping: o.Mapping, ExternalIPs: o.ExternalIPs, ServiceCIDRs: o.OVN.ServiceCIDRs, SNAT: o.OVN.SNAT,
			PolicyMode: o.OVN.PolicyMode, AuditDenied: o.OVN.AuditDenied, NodeAddress: names.ManagementAddress,
		},
	})
	runner, err := ovn.New(ovn.Options{
		Log: o.Log, Cluster: o.OVN.Cluster, Remotes: o.OVN.Northbound, TLS: o.OVN.TLS, Intent: source,
		Hub: distribution.Hub, Access: a, Monitor: monitor,
	})
	if err != nil {
		return nil, err
	}
	if err := m.Add(source); err != nil {
		return nil, err
	}
	return runner, runner.Setup(m)
}

// setupNeutron adds what has OpenStack's Neutron be as the cluster's intent says.
func setupNeutron(
	m manager.Manager, a *reconcile.Access, o Options, distribution *policies.Distribution, feed *policies.Feed,
	monitor *heartbeat.Monitor,
) (*neutron.Runner, error) {
	source := clusterintent.New(clusterintent.Options{
		Log: o.Log, Informers: m.GetCache(), Monitor: monitor,
		Policies: distribution.Engine, PoliciesKnown: feed.Known(), PoliciesProgressed: feed.Progressed,
		Settings: clusterintent.Settings{
			Mapping: o.Mapping, ExternalIPs: o.ExternalIPs, ServiceCIDRs: o.Neutron.ServiceCIDRs, SNAT: o.Neutron.SNAT,
			PolicyMode: o.Neutron.PolicyMode, NodeAddress: names.ManagementAddress, Projects: o.Neutron.Projects,
			Unbound: true, // a machine's interface is plugged for what Neutron has of its Port
		},
	})
	runner, err := neutron.New(neutron.Options{
		Log: o.Log, Cluster: o.Neutron.Cluster, Cloud: o.Neutron.Cloud, Northbound: o.Neutron.Northbound,
		TLS: o.Neutron.TLS, Spare: o.Neutron.Spare, Octavia: o.Neutron.Octavia, SubnetPools: o.NamespaceSubnets,
		GivenPools: o.Neutron.SubnetPools, Projects: slices.Collect(maps.Keys(o.Neutron.Projects)),
		Intent: source, Informers: m.GetCache(), Access: a,
		Hub: distribution.Hub, Monitor: monitor,
	})
	if err != nil {
		return nil, err
	}
	if err := m.Add(source); err != nil {
		return nil, err
	}
	return runner, runner.Setup(m)
}
