// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"coelan.io/coelan/internal/backend/neutron/resource"
)

// targetLists are the attributes of a BGPVPN that Neutron's policy hides from all but
// administrators, unless that is changed.
var targetLists = []string{"route_targets", "import_targets", "export_targets", "route_distinguishers"}

// bgpvpnPolicy is what Neutron's administrator does about BGPVPNs that the cluster's user may not
// make, change or see.
const bgpvpnPolicy = "Neutron's policy lets administrators alone do this unless it is changed: let the cluster's user create_bgpvpn, " +
	"update_bgpvpn, delete_bgpvpn and get_bgpvpn, all with route_targets, import_targets, export_targets and route_distinguishers"

// readBGPVPNs adds the BGPVPNs of Routers, known by their names, and which of the cluster's routers
// are in them. That they cannot be read keeps nothing else from being made.
func (s *session) readBGPVPNs(
	ctx context.Context, have *resource.Inventory, routers map[string]resource.Ref,
) error {
	all, err := s.listAll(ctx, resource.BGPVPN)
	var refused *refusal
	switch {
	case gone(err):
		have.BGPVPNs.Missing = true
		return nil
	case errors.As(err, &refused):
		have.BGPVPNs = resource.Extension{
			Reason: refused.reason, Why: "BGPVPNs of Neutron cannot be read: " + refused.about(resource.BGPVPN),
		}
		return nil
	case err != nil:
		return err
	}
	var own []resource.Actual
	for _, a := range all {
		if _, ours := s.ownBGPVPN(a); !ours || have.ProjectOf(a) != "" {
			continue
		}
		for _, list := range targetLists {
			if _, shown := a.Attributes[list]; !shown {
				have.BGPVPNs = resource.Extension{
					Reason: reasonRefused,
					Why:    fmt.Sprintf("%s of the BGPVPN %s are not to be seen: %s", list, a.ID, bgpvpnPolicy),
				}
				return nil
			}
		}
		own = append(own, a)
	}
	for _, a := range own {
		vpn, _ := s.ownBGPVPN(a)
		have.Put(vpn, a)
		in, _ := a.Attributes["routers"].([]any)
		for _, item := range in {
			id, _ := item.(string)
			if router, ours := routers[id]; ours {
				have.Put(resource.AssociationOf(vpn, router), resource.Associated(a.ID, id))
			}
		}
	}
	return nil
}

// ownBGPVPN is which BGPVPN of the cluster's one is by its name; false: none.
func (s *session) ownBGPVPN(a resource.Actual) (resource.Ref, bool) {
	name, _ := a.Attributes["name"].(string)
	key, ours := s.cluster.Owned(name)
	return resource.Ref{Kind: resource.BGPVPN, Key: key}, ours && strings.HasPrefix(key, "Router/")
}

// associations is where the places of routers in a BGPVPN are.
func associations(vpn any) string {
	return fmt.Sprintf("%s/%s/router_associations", collections[resource.BGPVPN].path, vpn)
}

// associate gives a router its place in a BGPVPN.
func (s *session) associate(ctx context.Context, attributes map[string]any) (resource.Actual, error) {
	vpn, _ := attributes["bgpvpn_id"].(string)
	router, _ := attributes["router_id"].(string)
	err := s.do(ctx, http.MethodPost, associations(vpn),
		map[string]any{"router_association": map[string]any{"router_id": router, "project_id": s.project}}, nil)
	return resource.Associated(vpn, router), err
}

// dissociate takes a router out of a BGPVPN.
func (s *session) dissociate(ctx context.Context, attributes resource.Attributes) error {
	path := associations(attributes["bgpvpn_id"])
	all, err := list[struct {
		ID     string
		Router string `json:"router_id"`
	}](s.getter(ctx), path, "router_associations", nil)
	for _, a := range all {
		if a.Router == attributes["router_id"] && err == nil {
			err = s.do(ctx, http.MethodDelete, path+"/"+a.ID, nil, nil)
		}
	}
	return err
}
