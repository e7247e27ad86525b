// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"

	"github.com/google/uuid"

	"coelan.io/coelan/internal/backend/neutron/resource"
)

// Wanted is a network of another program that an object names.
type Wanted struct {
	Object string // what people call it
	// Name is the network's UUID; or a tag of the only one that has it in a project: people of
	// other projects can give any tag to theirs.
	Name    string
	Project string // empty: the cluster's own
}

// readLent adds the networks of other programs that objects name, with their subnets.
func (s *session) readLent(ctx context.Context, have *resource.Inventory) error {
	for _, w := range s.lent() {
		loan, err := s.lentNetwork(ctx, w)
		if err != nil {
			return err
		}
		have.Lend(resource.LentNetwork(w.Object), loan)
		if loan.Refused != "" {
			continue
		}
		of, query := collections[resource.Subnet], url.Values{"network_id": {loan.ID}}
		subnets, err := list[map[string]any](s.getter(ctx), of.path, of.plural, query)
		if err != nil {
			return err
		}
		for _, attributes := range subnets {
			cidr, _ := attributes["cidr"].(string)
			if prefix, err := netip.ParsePrefix(cidr); err == nil {
				have.Lend(resource.LentSubnet(w.Object, prefix), resource.Loan{Actual: actual(attributes)})
			}
		}
	}
	return nil
}

// lentNetwork looks for a network of another program. An error is one after which nothing is known.
func (s *session) lentNetwork(ctx context.Context, w Wanted) (resource.Loan, error) {
	if uuid.Validate(w.Name) == nil {
		return lentByID(s.getter(ctx), resource.Network, w.Name)
	}
	project := cmp.Or(w.Project, s.project)
	found, err := s.list(ctx, resource.Network, []string{project}, url.Values{"tags": {w.Name}})
	if err == nil && len(found) != 1 {
		return resource.Loan{Refused: fmt.Sprintf("%d networks of the project %s have the tag %s: it is to be on one, or name "+
			"its UUID", len(found), project, w.Name)}, nil
	}
	if err != nil {
		return resource.Loan{}, err
	}
	return resource.Loan{Actual: found[0]}, nil
}

// lentByID looks for a resource of another program. An error is one after which nothing is known.
func lentByID(get getter, k resource.Kind, id string) (resource.Loan, error) {
	var answer map[string]map[string]any
	err := get(collections[k].path+"/"+id, &answer)
	var refused *refusal
	switch {
	case gone(err):
		return resource.Loan{Refused: fmt.Sprintf("Neutron has no %s %s", k, id)}, nil
	case errors.As(err, &refused):
		return resource.Loan{Refused: fmt.Sprintf("Neutron does not show the %s %s: %s", k, id, refused.text)}, nil
	}
	return resource.Loan{Actual: actual(answer[collections[k].singular])}, err
}
