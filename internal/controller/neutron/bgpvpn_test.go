// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/api/v1alpha1"
)

// A Router's targets become a BGPVPN as soon as Neutron has the extension, with nothing else
// changed.
func TestBGPVPN(t *testing.T) {
	w := newWorld(t)
	w.neutron.NoBGPVPNs(true)
	w.set(&v1alpha1.Router{
		ObjectMeta: metav1.ObjectMeta{Name: "red", UID: "red"}, Status: v1alpha1.RouterStatus{ID: 7, VNI: 7},
		Spec: v1alpha1.RouterSpec{
			RouteDistinguisher: "64512:9", ImportRouteTargets: []v1alpha1.RouteTarget{"64512:8", v1alpha1.DefaultRouteTarget},
			ExportRouteTargets: []v1alpha1.RouteTarget{"64512:7"},
		},
	})
	w.start()
	router := func() any {
		for _, r := range w.neutron.All("routers") {
			if r["name"] == "router-red" {
				return r["id"]
			}
		}
		return nil
	}
	w.await("there is no router", w.changes.Changed, func() bool { return router() != nil })
	if found := w.neutron.All("bgpvpns"); len(found) > 0 {
		t.Errorf("without the extension there is %v", found)
	}
	w.neutron.NoBGPVPNs(false)
	w.runner.client.Reread()
	want := fmt.Sprint("coelan/Router/red [64512:8] [64512:7] [] [64512:9] ", []any{router()})
	w.await("there is no BGPVPN "+want, w.changes.Changed, func() bool {
		for _, v := range w.neutron.All("bgpvpns") {
			if got := fmt.Sprint(v["name"], " ", v["import_targets"], " ", v["export_targets"], " ", v["route_targets"], " ",
				v["route_distinguishers"], " ", v["routers"]); got == want {
				return true
			}
		}
		return false
	})
}
