// SPDX-License-Identifier: Apache-2.0

//go:build neutron && integration

package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/neutrontest"
)

// bgpvpn is what a test reads of one.
type bgpvpn struct {
	ID             string
	Type           string
	Both           []string `json:"route_targets"`
	Imports        []string `json:"import_targets"`
	Exports        []string `json:"export_targets"`
	Distinguishers []string `json:"route_distinguishers"`
	Routers        []string
	// places are the ids of those of routers.
	places []string
}

// targets are its attributes without ids.
func (v bgpvpn) targets() string {
	return fmt.Sprint(v.Type, v.Both, v.Imports, v.Exports, v.Distinguishers)
}

// neutronBGPVPN is the BGPVPN of a name, with the ids of its routers' places; empty: there is none.
func neutronBGPVPN(t *testing.T, w *world, name string) (v bgpvpn) {
	t.Helper()
	list, _ := neutronCall(t, w, "GET", "bgpvpn/bgpvpns?name="+name, "")["bgpvpns"].([]any)
	if len(list) == 0 {
		return v
	}
	text, err := json.Marshal(list[0])
	must(t, err)
	must(t, json.Unmarshal(text, &v))
	places, _ := neutronCall(t, w, "GET", "bgpvpn/bgpvpns/"+v.ID+"/router_associations", "")["router_associations"].([]any)
	for _, p := range places {
		v.places = append(v.places, p.(map[string]any)["id"].(string))
	}
	if len(list) > 1 {
		t.Errorf("BGPVPNs of the name %s: %v", name, list)
	}
	return v
}

// A Router with route targets has a BGPVPN with its router in it, which changes with the targets,
// is mended, stays as it is when a controller starts, and goes with the targets, or the Router.
// What another program has made stays.
func neutronTargets(t *testing.T, w *world) {
	theirs := neutronCall(t, w, "POST", "bgpvpn/bgpvpns", fmt.Sprintf(`{"bgpvpn": {"project_id": %q, "name": "coelan/sites",
		"route_targets": ["64512:201"]}}`, neutrontest.Project))
	const name = "coelan/Router/hub"
	await := func(what, targets string) (v bgpvpn) {
		t.Helper()
		neutronPoll(t, func() bool {
			v = neutronBGPVPN(t, w, name)
			return v.targets() == targets && len(v.places) == 1 && len(v.Routers) == 1
		}, func() { t.Errorf("%s: the BGPVPN is %+v, want %s", what, v, targets) })
		return v
	}
	w.API.AddRouter("hub", v1alpha1.RouterSpec{
		ImportRouteTargets: []string{"64512:200", "64512:203"}, ExportRouteTargets: []string{"64512:201", "64512:203"},
		RouteDistinguisher: "64512:202",
	})
	w.API.AddRouter("spoke", v1alpha1.RouterSpec{ImportRouteTargets: []string{"64512:201"}, ExportRouteTargets: []string{"64512:200"}})
	first := await("at first", "l3[64512:203] [64512:200] [64512:201] [64512:202]")
	router := neutronOne(t, w, "routers", "name=router-hub")
	if len(first.Routers) != 1 || first.Routers[0] != router["id"] {
		t.Errorf("routers %v, want %v", first.Routers, router["id"])
	}
	for _, r := range []string{"hub", "spoke"} {
		ref := intent.PolicyRef{Kind: intent.PolicyKind(intent.KindRouter), Name: r}
		if why := w.Neutron.Unsupported()[ref]; why != "" {
			t.Errorf("not done of the Router %s: %s", r, why)
		}
	}

	must(t, w.API.ChangeRouter("hub", func(s *v1alpha1.RouterSpec) {
		s.ImportRouteTargets, s.ExportRouteTargets, s.RouteDistinguisher = []string{"64512:200", "64512:204"}, []string{"64512:204"}, ""
	}))
	const targets = "l3[64512:204] [64512:200] [] []"
	changed := await("other targets", targets)
	if changed.ID != first.ID || changed.places[0] != first.places[0] {
		t.Errorf("it was %+v and is %+v", first, changed)
	}

	w.Neutron.StopController()
	must(t, w.Neutron.StartController())
	w.API.AddRouter("later", v1alpha1.RouterSpec{ExportRouteTargets: []string{"64512:205"}})
	neutronPoll(t, func() bool { return len(neutronBGPVPN(t, w, "coelan/Router/later").places) == 1 },
		func() { t.Error("the next Router has no BGPVPN") })
	if after := await("after a start", targets); fmt.Sprint(after) != fmt.Sprint(changed) {
		t.Errorf("it was %+v, and after a start of the controller it is %+v", changed, after)
	}

	w.Neutron.StopController()
	neutronCall(t, w, "PUT", "bgpvpn/bgpvpns/"+first.ID, `{"bgpvpn": {"route_targets": ["64512:299"]}}`)
	neutronCall(t, w, "DELETE", "bgpvpn/bgpvpns/"+first.ID+"/router_associations/"+changed.places[0], "")
	must(t, w.Neutron.StartController())
	if mended := await("after changes by hand", targets); mended.ID != first.ID {
		t.Errorf("it was %+v and is %+v", changed, mended)
	}

	must(t, w.API.ChangeRouter("hub", func(s *v1alpha1.RouterSpec) { s.ImportRouteTargets, s.ExportRouteTargets = nil, nil }))
	w.API.RemoveRouter("later")
	neutronPoll(t, func() bool {
		return neutronBGPVPN(t, w, name).ID == "" && neutronBGPVPN(t, w, "coelan/Router/later").ID == ""
	}, func() { t.Error("BGPVPNs stay without targets, or without their Router") })
	if still := neutronOne(t, w, "routers", "name=router-hub"); still["id"] != router["id"] {
		t.Errorf("the router was %v and is %v", router["id"], still["id"])
	}
	w.API.RemoveRouter("hub")
	w.API.RemoveRouter("spoke")
	neutronPoll(t, func() bool {
		list, _ := neutronCall(t, w, "GET", "bgpvpn/bgpvpns", "")["bgpvpns"].([]any)
		text := fmt.Sprint(list)
		return len(list) == 1 && strings.Contains(text, theirs["bgpvpn"].(map[string]any)["id"].(string)) && strings.Contains(text, "64512:201")
	}, func() { t.Errorf("left is %v", neutronCall(t, w, "GET", "bgpvpn/bgpvpns", "")) })
}
