// SPDX-License-Identifier: Apache-2.0

package restconf

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/internal/restconf/datatree"
	"coelan.io/coelan/internal/restconf/mapping"
)

// Identity is a client as Kubernetes knows it.
type Identity struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string]authorizationv1.ExtraValue
}

// Answers of the API hold for a while.
const (
	accessFor        = 10 * time.Second
	maxAccessAnswers = 4096
)

// authorizer asks Kubernetes what clients may do. It is safe for concurrent use.
type authorizer struct {
	reviews authorization.SubjectAccessReviewInterface
	answers *cache.LRUExpireCache
}

func newAuthorizer(reviews authorization.SubjectAccessReviewInterface) *authorizer {
	return &authorizer{reviews: reviews, answers: cache.NewLRUExpireCache(maxAccessAnswers)}
}

// may reports whether a client may do something with an object; without a name, with all objects
// of the namespace, and without that of all namespaces.
func (a *authorizer) may(ctx context.Context, user Identity, verb string, r mapping.Resource, namespace, name string,
) (bool, error) {
	key := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q %q %q %q %q", user.Name, user.UID, user.Groups, user.Extra,
		verb, r.Group, r.Name, namespace, name))
	if answer, known := a.answers.Get(key); known {
		return answer.(bool), nil
	}
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: user.Name, UID: user.UID, Groups: user.Groups, Extra: user.Extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Group: r.Group, Resource: r.Name, Namespace: namespace, Name: name,
		},
	}
	review, err := a.reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("review of what %s may do: %w", user.Name, err)
	}
	a.answers.Add(key, review.Status.Allowed, accessFor)
	return review.Status.Allowed, nil
}

// mayDo returns an error for the first change that a client may not do.
func (a *authorizer) mayDo(ctx context.Context, user Identity, changes []mapping.Change) error {
	for _, c := range changes {
		namespace, name := c.Object.GetNamespace(), c.Object.GetName()
		ok, err := a.may(ctx, user, string(c.Verb), c.Resource, namespace, name)
		if err != nil {
			return err
		}
		if !ok {
			return datatree.Fail(datatree.AccessDenied, "", fmt.Sprintf("%s may not %s %s %s",
				user.Name, c.Verb, c.Resource.Name, types.NamespacedName{Namespace: namespace, Name: name}))
		}
	}
	return nil
}

// visible is the part of a World that a client may read. With strict, a client that may read
// nothing of what the lists are made of is refused.
func (a *authorizer) visible(ctx context.Context, user Identity, w *mapping.World, lists []*mapping.List, strict bool,
) (*mapping.World, error) {
	seen := &mapping.World{}
	s := scope{a: a, ctx: ctx, user: user}
	seen.Networks = filter(&s, mapping.Networks, w.Networks, func(string) string { return "" })
	seen.Routers = filter(&s, mapping.Routers, w.Routers, func(string) string { return "" })
	seen.Namespaces = filter(&s, mapping.Namespaces, w.Namespaces, func(string) string { return "" })
	seen.Nodes = filter(&s, mapping.Nodes, w.Nodes, func(string) string { return "" })
	namespaceOf := func(k types.NamespacedName) string { return k.Namespace }
	seen.Ports = filter(&s, mapping.Ports, w.Ports, namespaceOf)
	seen.Services = filter(&s, mapping.Services, w.Services, namespaceOf)
	seen.Slices = filter(&s, mapping.Slices, w.Slices, namespaceOf)
	seen.Policies = filter(&s, mapping.Policies, w.Policies, namespaceOf)
	seen.Objects = map[mapping.Resource]map[types.NamespacedName]client.Object{}
	for r, objects := range w.Objects {
		seen.Objects[r] = filter(&s, r, objects, namespaceOf)
	}
	seen.Pods = filter(&s, mapping.Pods, w.Pods, func(uid types.UID) string { return w.Pods[uid].Namespace })
	if s.err != nil {
		return nil, s.err
	}
	if strict {
		for _, l := range lists {
			if r := l.Reads[0]; !s.mayRead(r, "") && !anyOf(seen, r) {
				return nil, datatree.Fail(datatree.AccessDenied, "",
					fmt.Sprintf("%s may not list %s", user.Name, r.Name))
			}
		}
	}
	return seen, s.err
}

// mayReadAny returns an error for a client that may read nothing of any of the lists.
func (a *authorizer) mayReadAny(ctx context.Context, user Identity, w *mapping.World, lists []*mapping.List) error {
	seen, err := a.visible(ctx, user, w, lists, false)
	if err != nil {
		return err
	}
	s := scope{a: a, ctx: ctx, user: user}
	for _, l := range lists {
		if r := l.Reads[0]; s.mayRead(r, "") || anyOf(seen, r) {
			return s.err
		}
	}
	if s.err != nil {
		return s.err
	}
	return datatree.Fail(datatree.AccessDenied, "", user.Name+" may list nothing that the models have")
}

// anyOf reports whether a client sees objects of a resource.
func anyOf(seen *mapping.World, r mapping.Resource) bool {
	switch r {
	case mapping.Ports:
		return len(seen.Ports) > 0
	case mapping.Networks:
		return len(seen.Networks) > 0
	case mapping.Services:
		return len(seen.Services) > 0
	case mapping.Slices:
		return len(seen.Slices) > 0
	case mapping.Policies:
		return len(seen.Policies) > 0
	}
	return len(seen.Objects[r]) > 0
}

// scope asks for one client and keeps the first error.
type scope struct {
	a    *authorizer
	ctx  context.Context
	user Identity
	err  error
}

// mayRead reports whether a client may list a resource, in one namespace or in all.
func (s *scope) mayRead(r mapping.Resource, namespace string) bool {
	if s.err != nil {
		return false
	}
	ok, err := s.a.may(s.ctx, s.user, "list", r, namespace, "")
	s.err = err
	return ok
}

// filter keeps the objects of namespaces that a client may list.
func filter[K comparable, O any](s *scope, r mapping.Resource, objects map[K]O, namespace func(K) string) map[K]O {
	if len(objects) == 0 || s.mayRead(r, "") {
		return objects
	}
	kept, asked := map[K]O{}, map[string]bool{}
	for key, o := range objects {
		ns := namespace(key)
		if ns == "" {
			continue
		}
		ok, known := asked[ns]
		if !known {
			ok = s.mayRead(r, ns)
			asked[ns] = ok
		}
		if ok {
			kept[key] = o
		}
	}
	return kept
}
