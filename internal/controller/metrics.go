// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/allocate"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/version"
)

// counts are how many objects there are, computed from memory for each scrape;
// docs/develop/controller.md describes them. Every replica has them.
type counts struct{ client.Reader }

var (
	networksDesc = prometheus.NewDesc("coelan_networks", "Networks, by the reason of their condition Ready.",
		[]string{"reason"}, nil)
	routersDesc = prometheus.NewDesc("coelan_routers", "Routers, by the reason of their condition Ready.",
		[]string{"reason"}, nil)
	portsDesc = prometheus.NewDesc("coelan_user_ports", "Ports that users have made, by phase.", []string{"phase"},
		nil)
	floatingIPsDesc = prometheus.NewDesc("coelan_floating_ips", "FloatingIPs, by the reason of their condition Ready.",
		[]string{"reason"}, nil)
	egressesDesc = prometheus.NewDesc("coelan_egresses", "Egresses, by the reason of their condition Ready.",
		[]string{"reason"}, nil)
	nodeConfigsDesc = prometheus.NewDesc("coelan_node_network_configs",
		"NodeNetworkConfigs, by the reason of their condition Ready.", []string{"reason"}, nil)
	poolsDesc = prometheus.NewDesc("coelan_load_balancer_pools",
		"LoadBalancerPools, by the reason of their condition Ready.", []string{"reason"}, nil)
	poolSizeDesc = prometheus.NewDesc("coelan_load_balancer_addresses", "Addresses of a LoadBalancerPool.",
		[]string{"pool"}, nil)
	waitingDesc = prometheus.NewDesc("coelan_load_balancer_services_waiting",
		"Services that want addresses of LoadBalancerPools and have none.", nil, nil)
	assignedDesc = prometheus.NewDesc("coelan_load_balancer_addresses_assigned",
		"Addresses of a LoadBalancerPool that Services have.", []string{"pool"}, nil)
)

// register replaces what an earlier controller of this process has left.
func register(r client.Reader, o Options) {
	info := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "coelan_controller_info", Help: "Always 1; says what runs.",
		ConstLabels: prometheus.Labels{"version": version.String(), "mapping": string(o.Mapping)},
	}, func() float64 { return 1 })
	for _, c := range []prometheus.Collector{info, counts{r}} {
		metrics.Registry.Unregister(c)
		metrics.Registry.MustRegister(c)
	}
}

// Describe implements prometheus.Collector.
func (counts) Describe(to chan<- *prometheus.Desc) {
	to <- networksDesc
	to <- routersDesc
	to <- portsDesc
	to <- floatingIPsDesc
	to <- egressesDesc
	to <- nodeConfigsDesc
	to <- poolsDesc
	to <- poolSizeDesc
	to <- assignedDesc
	to <- waitingDesc
}

// Collect implements prometheus.Collector. Before memory is filled there is nothing to count.
func (c counts) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), synced)
	defer cancel()
	networks, routers, ports := map[string]int{}, map[string]int{}, map[string]int{}
	if list, err := reconcile.All(ctx, c, &v1alpha1.NetworkList{}); err == nil {
		for _, n := range list.Items {
			networks[reasonOf(n.Status.Conditions)]++
		}
	}
	if list, err := reconcile.All(ctx, c, &v1alpha1.RouterList{}); err == nil {
		for _, o := range list.Items {
			routers[reasonOf(o.Status.Conditions)]++
		}
	}
	if list, err := reconcile.All(ctx, c, &v1alpha1.PortList{}); err == nil {
		for _, p := range list.Items {
			if !p.Spec.ByAgent() {
				ports[string(p.Status.Phase)]++
			}
		}
	}
	floatingIPs := map[string]int{}
	if list, err := reconcile.All(ctx, c, &v1alpha1.FloatingIPList{}); err == nil {
		for _, f := range list.Items {
			floatingIPs[reasonOf(f.Status.Conditions)]++
		}
	}
	egresses := map[string]int{}
	if list, err := reconcile.All(ctx, c, &v1alpha1.EgressList{}); err == nil {
		for _, e := range list.Items {
			egresses[reasonOf(e.Status.Conditions)]++
		}
	}
	nodeConfigs := map[string]int{}
	if list, err := reconcile.All(ctx, c, &v1alpha1.NodeNetworkConfigList{}); err == nil {
		for _, o := range list.Items {
			nodeConfigs[reasonOf(o.Status.Conditions)]++
		}
	}
	c.collectPools(ctx, to)
	for _, m := range []struct {
		desc   *prometheus.Desc
		counts map[string]int
	}{
		{networksDesc, networks}, {routersDesc, routers}, {portsDesc, ports}, {floatingIPsDesc, floatingIPs},
		{egressesDesc, egresses}, {nodeConfigsDesc, nodeConfigs},
	} {
		send(to, m.desc, m.counts)
	}
}

func send(to chan<- prometheus.Metric, desc *prometheus.Desc, counts map[string]int) {
	for value, count := range counts {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(count), value)
	}
}

func (c counts) collectPools(ctx context.Context, to chan<- prometheus.Metric) {
	pools, err := reconcile.All(ctx, c, &v1alpha1.LoadBalancerPoolList{})
	if err != nil {
		return
	}
	services, err := reconcile.All(ctx, c, &corev1.ServiceList{})
	if err != nil {
		return
	}
	reasons, sizes, assigned := map[string]int{}, map[string]int{}, map[string]int{}
	for _, p := range pools.Items {
		reasons[reasonOf(p.Status.Conditions)]++
		sizes[p.Name], assigned[p.Name] = int(p.Status.Addresses), int(p.Status.Assigned)
	}
	waiting := 0
	for _, svc := range reconcile.Pointers(services.Items) {
		if len(svc.Status.LoadBalancer.Ingress) == 0 &&
			allocate.WantsPoolAddress(svc, reconcile.Pointers(pools.Items)) {
			waiting++
		}
	}
	send(to, poolsDesc, reasons)
	send(to, poolSizeDesc, sizes)
	send(to, assignedDesc, assigned)
	to <- prometheus.MustNewConstMetric(waitingDesc, prometheus.GaugeValue, float64(waiting))
}

func reasonOf(conditions []metav1.Condition) string {
	if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); c != nil {
		return c.Reason
	}
	return "" // new
}
