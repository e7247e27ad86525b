// SPDX-License-Identifier: Apache-2.0

package podplan

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni"
	"coelan.io/coelan/internal/podnets"
)

// Reasons of Events about what was left out.
const (
	reasonSkipped = "NetworkSkipped"
	reasonIgnored = "KeyIgnored"
)

// requested plans the interfaces that a pod asks for by annotations, and changes the first one to
// what is asked of it.
func (p *Planner) requested(ctx context.Context, ask cni.Request, pod *corev1.Pod, namespace *corev1.Namespace,
	first *attachment.Plan) (
	[]attachment.Plan, error,
) {
	requests, err := p.requests(ask, pod)
	if err != nil {
		return nil, err
	}
	var list []attachment.Plan
	for _, r := range requests {
		if r.Annotation == podnets.AnnotationNetworks && !p.Serves() {
			continue // Multus requests it by an ADD of its own
		}
		if len(r.Ignored) > 0 {
			p.Events.PodWarning(ask.PodNamespace, ask.PodName, ask.PodUID, reasonIgnored,
				fmt.Sprintf("%s: without effect: %s", r, strings.Join(r.Ignored, ", ")))
		}
		if r.Primary {
			first.Requested = first.Override(r.Requested)
			continue
		}
		i, ok, err := p.further(ctx, ask, r, requests, first.NetworkName, namespace)
		if err != nil {
			return nil, err
		}
		if ok {
			list = append(list, i)
		}
	}
	return list, nil
}

func (p *Planner) requests(ask cni.Request, pod *corev1.Pod) ([]podnets.Request, error) {
	if pod == nil {
		return nil, nil
	}
	requests, err := podnets.Parse(pod.Annotations, ask.PodNamespace)
	if err != nil {
		return nil, refused(v1alpha1.ReasonInvalid, "%v", err)
	}
	return requests, nil
}

// further plans the interface of one request; false if it is not Coelan's to make.
func (p *Planner) further(ctx context.Context, ask cni.Request, r podnets.Request, all []podnets.Request,
	primary string,
	namespace *corev1.Namespace,
) (attachment.Plan, bool, error) {
	i := plan(r.Interface, r.Requested)
	network := r.Network
	if r.Name != "" {
		config, err := p.definition(ctx, r)
		if err != nil {
			return i, false, err
		}
		switch {
		case !config.Coelan:
			p.Events.PodWarning(ask.PodNamespace, ask.PodName, ask.PodUID, reasonSkipped, fmt.Sprintf(
				"%s: NetworkAttachmentDefinition %s/%s is for the plugin %q, which Coelan does not call: that takes Multus",
				r, r.Namespace, r.Name, config.Type))
			return i, false, nil
		case config.Subnet != "":
			i.NAD = r.Namespace + "/" + r.Name
			i, err = p.onSubnet(ctx, i, r, config, primary, namespace)
			return i, err == nil, err
		case config.Network == "" && asksByNFN(all):
			return i, false, nil // it only says which plugin the other annotation is for
		case config.Network == "":
			return i, false, refused(v1alpha1.ReasonInvalid,
				"%s: NetworkAttachmentDefinition %s/%s names no network in spec.config",
				r, r.Namespace, r.Name)
		}
		network, i.NAD = config.Network, r.Namespace+"/"+r.Name
	}
	i, err := p.secondary(ctx, i, network, primary, namespace)
	return i, err == nil, about(r.String(), err)
}

// about says in an error what it is about.
func about(what string, err error) error {
	var plan *cni.PlanError
	if errors.As(err, &plan) {
		plan.Message = what + ": " + plan.Message
	}
	return err
}

func asksByNFN(requests []podnets.Request) bool {
	for _, r := range requests {
		if r.Annotation == podnets.AnnotationNFNNetwork {
			return true
		}
	}
	return false
}

// definition reads the NetworkAttachmentDefinition of a request: one that the view lacks may be
// new, so it is asked for.
func (p *Planner) definition(ctx context.Context, r podnets.Request) (podnets.Config, error) {
	key := r.Namespace + "/" + r.Name
	d := p.View.State().Definitions.Get(key)
	if d == nil {
		bounded, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		var err error
		d, err = p.API.Definition(bounded, r.Namespace, r.Name)
		switch {
		case apierrors.IsNotFound(err):
			return podnets.Config{}, refused(v1alpha1.ReasonNetworkNotFound,
				"%s: NetworkAttachmentDefinition %s does not exist", r, key)
		case err != nil:
			return podnets.Config{}, early(v1alpha1.ReasonNetworkNotFound, "%s: NetworkAttachmentDefinition %s: %v", r,
				key, err)
		}
	}
	config, err := podnets.ParseDefinition(d.Spec.Config, d.Annotations)
	if err != nil {
		return config, refused(v1alpha1.ReasonInvalid, "%s: NetworkAttachmentDefinition %s: %v", r, key, err)
	}
	return config, nil
}

// nfnDelegate finds what an interface of a delegate without a Network is to be: what the pod asks
// for under its name, or else what it asks for first and does not have.
func (p *Planner) nfnDelegate(ask cni.Request, pod *corev1.Pod) (podnets.Request, bool, error) {
	requests, err := p.requests(ask, pod)
	if err != nil {
		return podnets.Request{}, false, err
	}
	have := map[string]bool{}
	for _, at := range p.Store.Of(ask.ContainerID) {
		have[at.NetworkName] = true
	}
	var candidates []podnets.Request
	for _, r := range requests {
		if r.Annotation != podnets.AnnotationNFNNetwork || r.Primary {
			continue
		}
		if r.Interface == ask.IfName {
			return r, true, nil
		}
		if !have[r.Network] {
			candidates = append(candidates, r)
		}
	}
	if len(candidates) == 0 {
		return podnets.Request{}, false, nil
	}
	return candidates[0], true, nil
}

// Annotations are what a pod that asks for interfaces by annotations is told of those it has. What
// Multus asks for, Multus tells of.
func Annotations(serves func() bool) func(*corev1.Pod, []attachment.Attachment) map[string]string {
	return func(pod *corev1.Pod, list []attachment.Attachment) map[string]string {
		told := map[string]string{}
		asksNFN := pod.Annotations[podnets.AnnotationNFNNetwork] != ""
		if (pod.Annotations[podnets.AnnotationNetworks] != "" || asksNFN) && serves() {
			told[podnets.AnnotationNetworkStatus] = podnets.NetworkStatus(list)
		}
		if asksNFN {
			told[podnets.AnnotationOVNInterfaces] = podnets.OVNInterfaces(list)
		}
		return told
	}
}
