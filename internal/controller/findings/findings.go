// SPDX-License-Identifier: Apache-2.0

// Package findings reports what the system behind a backend of the controller, such as OVN, does
// not do of objects: by Events, and by the conditions that follow from a Hub.
package findings

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/retry"
	"coelan.io/coelan/internal/trigger"
)

// Finding is what is not done of an object, or not as asked for.
type Finding struct {
	Object  string // what people call it, such as "Egress web"
	Reason  string // one word, as conditions have it
	Message string // what is not done, and what to do
}

// Hub is what a Reporter needs of a server.Hub.
type Hub interface {
	SetUnsupported(objects map[intent.PolicyRef]string)
}

// Reporter reports what Set was called with last. Its methods are safe for concurrent use.
type Reporter struct {
	log    *slog.Logger
	access *reconcile.Access
	hub    Hub
	news   trigger.Trigger

	mu                 sync.Mutex
	findings, warnings []Finding
}

// New makes a Reporter.
func New(log *slog.Logger, access *reconcile.Access, hub Hub) *Reporter {
	return &Reporter{log: log, access: access, hub: hub, news: trigger.New()}
}

// Set replaces what was found. While there is a failure of the system as a whole, the Network and
// the Router default say why.
func (r *Reporter) Set(list []Finding, failure error) {
	all := map[intent.PolicyRef]string{}
	add := func(ref intent.PolicyRef, text string) {
		if before := all[ref]; before != "" {
			text = before + "; " + text
		}
		all[ref] = text
	}
	for _, f := range list {
		add(Ref(f.Object), f.Message)
	}
	if failure != nil {
		add(reconcile.ObjectRef(intent.KindNetwork, intent.DefaultNetworkName), failure.Error())
		add(reconcile.ObjectRef(intent.KindRouter, intent.DefaultRouterName), failure.Error())
	}
	r.hub.SetUnsupported(all)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.findings, list) {
		r.findings = slices.Clone(list)
		r.news.Fire()
	}
}

// Warn replaces what is in effect and may soon not be, as near a limit. Only Events say so.
func (r *Reporter) Warn(list []Finding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.warnings, list) {
		r.warnings = slices.Clone(list)
		r.news.Fire()
	}
}

// Ref is the object that a Finding names.
func Ref(object string) intent.PolicyRef {
	kind, key, _ := strings.Cut(object, " ")
	return RefTo(intent.Kind(kind), key)
}

// RefTo is an object by its name, or namespace/name.
func RefTo(kind intent.Kind, key string) intent.PolicyRef {
	ref := reconcile.ObjectRef(kind, key)
	if namespace, name, ok := strings.Cut(key, "/"); ok {
		ref.Namespace, ref.Name = namespace, name
	}
	return ref
}

// Pauses between attempts to read the Events that there are.
const (
	firstPause = time.Second
	lastPause  = time.Minute
)

// Run makes an Event of each finding, once, until ctx ends.
func (r *Reporter) Run(ctx context.Context) {
	events := reconcile.EventDedup{Kinds: kindNames()}
	for pause := retry.New(firstPause, lastPause); ; {
		select {
		case <-ctx.Done():
			return
		case <-r.news:
		}
		r.mu.Lock()
		findings := slices.Concat(r.findings, r.warnings)
		r.mu.Unlock()
		var list []reconcile.Problem
		for _, f := range findings {
			if about, ok := r.about(ctx, f); ok {
				list = append(list, reconcile.Problem{About: about, Reason: f.Reason, Message: f.Message})
			}
		}
		if err := events.Report(ctx, r.access, list); err != nil && ctx.Err() == nil {
			r.log.Warn("cannot report what is not done of objects, trying again", "err", err)
			r.news.Fire()
			pause.Wait(ctx)
			continue
		}
		pause.Reset()
	}
}

// objects are the kinds of objects with findings, by the first word of what people call them.
var objects = map[string]func() client.Object{
	"Network": func() client.Object { return &v1alpha1.Network{} }, "Router": func() client.Object { return &v1alpha1.Router{} },
	"Port": func() client.Object { return &v1alpha1.Port{} }, "FloatingIP": func() client.Object { return &v1alpha1.FloatingIP{} },
	"Egress": func() client.Object { return &v1alpha1.Egress{} }, "Node": func() client.Object { return &corev1.Node{} },
	"Service":       func() client.Object { return &corev1.Service{} },
	"Namespace":     func() client.Object { return &corev1.Namespace{} },
	"NetworkPolicy": func() client.Object { return &networkingv1.NetworkPolicy{} },
	"SecurityGroup": func() client.Object { return &v1alpha1.SecurityGroup{} },
}

func kindNames() (list []string) {
	for kind := range objects {
		list = append(list, kind)
	}
	return list
}

// about is the object of a finding; false if it is gone.
func (r *Reporter) about(ctx context.Context, f Finding) (*corev1.ObjectReference, bool) {
	ref := Ref(f.Object)
	object := objects[string(ref.Kind)]
	if object == nil {
		return nil, false
	}
	o := object()
	if there, err := r.access.Find(ctx, ref.Namespace, ref.Name, o); err != nil || !there {
		return nil, false
	}
	version := v1alpha1.GroupVersion.String()
	switch o.(type) {
	case *corev1.Node, *corev1.Service, *corev1.Namespace:
		version = "v1"
	case *networkingv1.NetworkPolicy:
		version = networkingv1.SchemeGroupVersion.String()
	}
	return &corev1.ObjectReference{
		APIVersion: version, Kind: string(ref.Kind), Namespace: ref.Namespace, Name: ref.Name, UID: o.GetUID(),
	}, true
}
