// SPDX-License-Identifier: Apache-2.0

package ovn

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/backend/ovn/nb"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/retry"
)

// publish has the conditions of objects say what OVN does not do of them. While the database is not
// as wanted, the Network and the Router default say why. r.mu is held.
func (r *Runner) publish() {
	all := map[intent.PolicyRef]string{}
	add := func(ref intent.PolicyRef, text string) {
		if before := all[ref]; before != "" {
			text = before + "; " + text
		}
		all[ref] = text
	}
	for _, p := range r.problems {
		add(refOf(p.Object), p.Message)
	}
	if r.failure != nil {
		add(reconcile.ObjectRef(intent.KindNetwork, intent.DefaultNetworkName), r.failure.Error())
		add(reconcile.ObjectRef(intent.KindRouter, intent.DefaultRouterName), r.failure.Error())
	}
	r.Hub.SetUnsupported(all)
}

// refOf is the object that a problem names.
func refOf(object string) intent.PolicyRef {
	kind, key, _ := strings.Cut(object, " ")
	return objectRef(intent.Kind(kind), key)
}

// objectRef is an object by its name, or namespace/name.
func objectRef(kind intent.Kind, key string) intent.PolicyRef {
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

// announce makes an Event of each problem, once.
func (r *Runner) announce(ctx context.Context) {
	events := reconcile.EventDedup{Kinds: kindNames()}
	for pause := retry.New(firstPause, lastPause); ; {
		select {
		case <-ctx.Done():
			return
		case <-r.findings:
		}
		r.mu.Lock()
		problems := r.problems
		r.mu.Unlock()
		var list []reconcile.Problem
		for _, p := range problems {
			if about, ok := r.about(ctx, p); ok {
				list = append(list, reconcile.Problem{About: about, Reason: p.Reason, Message: p.Message})
			}
		}
		if err := events.Report(ctx, r.Access, list); err != nil && ctx.Err() == nil {
			r.Log.Warn("cannot report what OVN does not do, trying again", "err", err)
			r.findings.Fire()
			pause.Wait(ctx)
			continue
		}
		pause.Reset()
	}
}

// objects are the kinds of objects with problems, by the first word of what people call them.
var objects = map[string]func() client.Object{
	"Network": func() client.Object { return &v1alpha1.Network{} }, "Router": func() client.Object { return &v1alpha1.Router{} },
	"Port": func() client.Object { return &v1alpha1.Port{} }, "FloatingIP": func() client.Object { return &v1alpha1.FloatingIP{} },
	"Egress": func() client.Object { return &v1alpha1.Egress{} }, "Node": func() client.Object { return &corev1.Node{} },
	"Service":       func() client.Object { return &corev1.Service{} },
	"NetworkPolicy": func() client.Object { return &networkingv1.NetworkPolicy{} },
	"SecurityGroup": func() client.Object { return &v1alpha1.SecurityGroup{} },
}

func kindNames() (list []string) {
	for kind := range objects {
		list = append(list, kind)
	}
	return list
}

// about is the object of a problem; false if it is gone.
func (r *Runner) about(ctx context.Context, p nb.Problem) (*corev1.ObjectReference, bool) {
	ref := refOf(p.Object)
	object := objects[string(ref.Kind)]
	if object == nil {
		return nil, false
	}
	o := object()
	if there, err := r.Access.Find(ctx, ref.Namespace, ref.Name, o); err != nil || !there {
		return nil, false
	}
	version := v1alpha1.GroupVersion.String()
	switch o.(type) {
	case *corev1.Node, *corev1.Service:
		version = "v1"
	case *networkingv1.NetworkPolicy:
		version = networkingv1.SchemeGroupVersion.String()
	}
	return &corev1.ObjectReference{
		APIVersion: version, Kind: string(ref.Kind), Namespace: ref.Namespace, Name: ref.Name, UID: o.GetUID(),
	}, true
}
