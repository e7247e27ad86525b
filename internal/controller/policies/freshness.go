// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/policyapi"
	"coelan.io/coelan/internal/retry"
)

// viewSource answers for what a replica knows. It implements server.Source.
type viewSource struct {
	*Progress
	// live reads from the API server itself.
	live client.Reader

	asking sync.Mutex
	asked  map[string]answer
}

// answer is a resource version of the API server.
type answer struct {
	version uint64
	at      time.Time
}

func newViewSource(p *Progress, live client.Reader) *viewSource {
	return &viewSource{Progress: p, live: live, asked: map[string]answer{}}
}

// answerAge is how long an answer is used again: agents cause the question.
const answerAge = time.Second

// Newest implements server.Source: the resource version of a list of one object, which the API
// server reads from its storage.
func (s *viewSource) Newest(ctx context.Context, kind string) (uint64, error) {
	s.asking.Lock()
	defer s.asking.Unlock()
	if a, ok := s.asked[kind]; ok && time.Since(a.at) < answerAge {
		return a.version, nil
	}
	gvk, ok := kindsOfPolicies(s.scheme)[kind]
	if !ok {
		return 0, fmt.Errorf("no policies depend on objects of the kind %s", kind)
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	options := []client.ListOption{client.Limit(1)}
	if kind == s.kindOf(definitionKind()) { // a right to one of them
		options = append(options, client.MatchingFields{metav1.ObjectNameField: clusterDefinition})
	}
	at := time.Now()
	if err := s.live.List(ctx, list, options...); err != nil {
		return 0, fmt.Errorf("resource version of %s: %w", kind, err)
	}
	version, err := reconcile.ParseVersion(list.ResourceVersion)
	if err != nil {
		return 0, fmt.Errorf("resource version of %s: %w", kind, err)
	}
	s.asked[kind] = answer{version, at}
	return version, nil
}

// kindsOfPolicies are the kinds of a Basis, by name.
func kindsOfPolicies(scheme *runtime.Scheme) map[string]schema.GroupVersionKind {
	all := map[string]schema.GroupVersionKind{}
	for _, o := range append(policyKinds(), definitionKind()) {
		if gvk, err := apiutil.GVKForObject(o, scheme); err == nil {
			all[gvk.GroupKind().String()] = gvk
		}
	}
	gvk := policyapi.New().GroupVersionKind()
	all[gvk.GroupKind().String()] = gvk
	return all
}

// The API server is asked now and then, because a watch that has stopped does not say so. Watches
// on which nothing happens get a bookmark about every minute.
const (
	freshnessInterval = time.Minute
	staleAfter        = 3 * time.Minute
)

// freshness finds out whether the watches go on.
type freshness struct {
	*viewSource
	log    *slog.Logger
	behind func(reason string)
	// targets are resource versions that the API server has had, by kind, which are not seen yet.
	targets map[string]answer
}

// run looks until ctx ends.
func (f *freshness) run(ctx context.Context) {
	last := ""
	for retry.Sleep(ctx, freshnessInterval) {
		reason := f.look(ctx, time.Now())
		f.behind(reason)
		switch {
		case reason != "" && last == "":
			f.log.Error("this replica lags behind the API server: agents are redirected to other replicas",
				"reason", reason)
		case reason == "" && last != "":
			f.log.Info("this replica has caught up with the API server")
		}
		last = reason
	}
}

// look compares what is seen with what the API server had some time ago, and says what is missing.
// An API server that does not answer proves nothing.
func (f *freshness) look(ctx context.Context, now time.Time) (reason string) {
	basis := f.Basis()
	for _, kind := range slices.Sorted(maps.Keys(basis)) {
		target, ok := f.targets[kind]
		switch {
		case ok && basis[kind].Seen < target.version:
			if age := now.Sub(target.at); age >= staleAfter && reason == "" {
				reason = fmt.Sprintf("%s: changes are seen up to resource version %d, and the API server had %d %s ago",
					kind, basis[kind].Seen, target.version, age.Truncate(time.Second))
			}
			continue
		case ok:
			delete(f.targets, kind)
		}
		version, err := f.Newest(ctx, kind)
		if err != nil {
			f.log.Debug("cannot read the API server's current resource version", "err", err)
			continue
		}
		f.targets[kind] = answer{version, now}
	}
	for kind := range f.targets {
		if _, used := basis[kind]; !used {
			delete(f.targets, kind)
		}
	}
	return reason
}
