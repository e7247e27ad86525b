// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"coelan.io/coelan/internal/backend/neutron/resource"
)

// call makes a call. Several can be made at once.
func (s *session) call(
	ctx context.Context, c resource.Call, attributes map[string]any, doubtful bool,
) (a resource.Actual, err error) {
	switch c.Operation {
	case resource.Create:
		return s.create(ctx, c.Ref, attributes, doubtful)
	case resource.Update, resource.Detach:
		return s.change(ctx, c.Ref, c.ID, attributes)
	case resource.Delete:
		err = s.remove(ctx, c)
	}
	return a, err
}

// create makes a resource, unless a call has made it of which that is not known.
func (s *session) create(
	ctx context.Context, r resource.Ref, attributes map[string]any, doubtful bool,
) (resource.Actual, error) {
	switch r.Kind {
	case resource.Interface:
		return s.addRouterInterface(ctx, attributes)
	case resource.Association:
		return s.associate(ctx, attributes)
	}
	if doubtful {
		if a, found, err := s.find(ctx, r); found || err != nil {
			return a, err
		}
	}
	c := collections[r.Kind]
	var answer map[string]map[string]any
	err := s.do(ctx, http.MethodPost, c.path, map[string]any{c.singular: s.body(r, attributes)}, &answer)
	return actual(answer[c.singular]), err
}

// body is what makes a resource: its attributes, its owner, and the project.
func (s *session) body(r resource.Ref, attributes map[string]any) map[string]any {
	body := map[string]any{collections[r.Kind].mark(): s.owner(r), "project_id": cmp.Or(r.Project, s.project)}
	for name, value := range attributes {
		body[name] = value
	}
	return body
}

// note remembers whether it is known that a call had its effect.
func (s *session) note(err error, r resource.Ref) {
	var refused *refusal
	if errors.As(err, &refused) && !refused.uncertain || err == nil {
		delete(s.doubtful, r)
	} else {
		s.doubtful[r] = true
	}
}

// addRouterInterface gives a subnet its place on a router.
func (s *session) addRouterInterface(ctx context.Context, attributes map[string]any) (resource.Actual, error) {
	router, _ := attributes["router_id"].(string)
	var answer map[string]any
	err := s.do(ctx, http.MethodPut, "routers/"+router+"/add_router_interface",
		map[string]any{"subnet_id": attributes["subnet_id"]}, &answer)
	id, _ := answer["port_id"].(string)
	return resource.Actual{ID: id, Attributes: attributes}, err
}

// change changes attributes of a resource.
func (s *session) change(
	ctx context.Context, r resource.Ref, id string, attributes map[string]any,
) (resource.Actual, error) {
	k := r.Kind
	if k == resource.Routes {
		k = resource.Router
	}
	c := collections[k]
	var answer map[string]map[string]any
	err := s.do(ctx, http.MethodPut, c.path+"/"+id, map[string]any{c.singular: attributes}, &answer)
	a := actual(answer[c.singular])
	if err == nil && r.Kind == resource.Routes {
		a = routesOf(a)
	}
	return a, err
}

// remove deletes a resource; that it is gone is no error.
func (s *session) remove(ctx context.Context, c resource.Call) error {
	var err error
	switch c.Ref.Kind {
	case resource.Interface:
		router, _ := c.Attributes["router_id"].(string)
		err = s.do(ctx, http.MethodPut, "routers/"+router+"/remove_router_interface",
			map[string]any{"subnet_id": c.Attributes["subnet_id"]}, nil)
	case resource.Association:
		err = s.dissociate(ctx, c.Attributes)
	default:
		err = s.do(ctx, http.MethodDelete, collections[c.Ref.Kind].path+"/"+c.ID, nil, nil)
	}
	if gone(err) {
		return nil
	}
	return err
}

// do makes one call. Its error is a *refusal or an *outage.
func (s *session) do(ctx context.Context, method, path string, body, answer any) error {
	s.calls()
	return send(ctx, s.api, method, path, body, answer)
}
