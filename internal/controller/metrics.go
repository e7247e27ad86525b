// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/version"
)

// counts are how many objects there are, worked out from memory when somebody asks; docs/controller.md describes them.
// Every replica has them.
type counts struct{ client.Reader }

var (
	networksDesc = prometheus.NewDesc("coelan_networks", "Networks, by the reason of their condition Ready.", []string{"reason"}, nil)
	routersDesc  = prometheus.NewDesc("coelan_routers", "Routers, by the reason of their condition Ready.", []string{"reason"}, nil)
	portsDesc    = prometheus.NewDesc("coelan_user_ports", "Ports that users have made, by phase.", []string{"phase"}, nil)
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
}

// Collect implements prometheus.Collector. Before memory is filled there is nothing to count.
func (c counts) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), synced)
	defer cancel()
	networks, routers, ports := map[string]int{}, map[string]int{}, map[string]int{}
	if list, err := all(ctx, c, &v1alpha1.NetworkList{}); err == nil {
		for _, n := range list.Items {
			networks[reasonOf(n.Status.Conditions)]++
		}
	}
	if list, err := all(ctx, c, &v1alpha1.RouterList{}); err == nil {
		for _, o := range list.Items {
			routers[reasonOf(o.Status.Conditions)]++
		}
	}
	if list, err := all(ctx, c, &v1alpha1.PortList{}); err == nil {
		for _, p := range list.Items {
			if p.Spec.Pod == nil {
				ports[string(p.Status.Phase)]++
			}
		}
	}
	for _, m := range []struct {
		desc   *prometheus.Desc
		counts map[string]int
	}{{networksDesc, networks}, {routersDesc, routers}, {portsDesc, ports}} {
		for value, count := range m.counts {
			to <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, float64(count), value)
		}
	}
}

func reasonOf(conditions []metav1.Condition) string {
	if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); c != nil {
		return c.Reason
	}
	return "" // new
}
