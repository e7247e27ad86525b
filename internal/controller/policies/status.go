// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/controller/reconcile"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policyapi"
	"coelan.io/coelan/internal/policystream/server"
	"coelan.io/coelan/internal/retry"
	"coelan.io/coelan/internal/translate"
	"coelan.io/coelan/internal/translate/policies"
)

// policyStatus reports what has become of policies: by Events what is wrong with them,
// and by the conditions of those that have a status also on how many nodes they are in
// effect. The leader does.
type policyStatus struct {
	*reconcile.Access
	log      *slog.Logger
	policies *Feed
	events   reconcile.EventDedup
	// interval is the least time between two looks: counts of nodes come one by one.
	interval time.Duration
	// loop reports a look that does not end: each has a bound.
	loop *heartbeat.Loop
}

// policyKindNames are the kinds that Events are about.
var policyKindNames = []string{
	string(intent.NetworkPolicy), string(intent.ClusterNetworkPolicy), string(intent.SecurityGroup), "Pod", "Port",
}

// NeedLeaderElection says that only the leader does it.
func (s *policyStatus) NeedLeaderElection() bool { return true }

// Start works until ctx ends.
func (s *policyStatus) Start(ctx context.Context) error {
	// Of a part alone less is wrong than of all, and what is not found again counts as solved.
	select {
	case <-s.policies.complete:
	case <-ctx.Done():
		return nil
	}
	for pause := s.interval; ; {
		if !retry.Sleep(ctx, pause) {
			return nil
		}
		if err := s.look(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if !reconcile.IsFaster(err) {
				s.log.Warn("cannot write the status of policies, retrying", "err", err)
			}
			pause = min(2*pause, lastPause)
			continue
		}
		pause = s.interval
		select {
		case <-s.policies.findingsChanged:
		case <-s.policies.hub.ProgrammedChanged():
		case <-ctx.Done():
			return nil
		}
	}
}

// lastPause is the time between two tries to write what the API server keeps refusing.
const lastPause = 30 * time.Second

// known is a policy that there is, and what is wrong with it.
type known struct {
	ref      intent.PolicyRef
	object   client.Object
	problems []translate.Problem
}

func (p *Feed) findings() ([]known, []policies.EndpointProblem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]known, 0, len(p.objects))
	for ref, o := range p.objects {
		if problems := p.problemsOf(ref); len(problems) > 0 || ref.Kind != intent.NetworkPolicy {
			list = append(list, known{ref, o, problems})
		}
	}
	slices.SortFunc(list, func(a, b known) int { return a.ref.Compare(b.ref) })
	return list, p.ofEndpoints
}

// problemsOf are those of a policy; p.mu is held.
func (p *Feed) problemsOf(ref intent.PolicyRef) []translate.Problem {
	group, is := p.objects[ref].(*v1alpha1.SecurityGroup)
	if !is {
		return p.problems[ref]
	}
	exists := func(ref intent.PolicyRef) bool { return p.objects[ref] != nil }
	return slices.Concat(p.problems[ref], policies.MissingGroups(group, exists))
}

// lookTimeout is the bound of one look. What it has written by then, the next one has not to write.
const lookTimeout = time.Minute

func (s *policyStatus) look(ctx context.Context) error {
	defer s.loop.Step()()
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	list, ofEndpoints := s.policies.findings()
	if err := s.events.Report(ctx, s.Access,
		append(problemsOfPolicies(list), problemsOfEndpoints(ofEndpoints)...)); err != nil {
		return err
	}
	refused := s.policies.hub.Refused()
	return reconcile.Each(ctx, list, func(ctx context.Context, k known) error {
		if k.ref.Kind == intent.NetworkPolicy {
			return nil // it has no status
		}
		return s.write(ctx, k, refused[k.ref])
	})
}

var apiVersions = map[intent.PolicyKind]string{
	intent.NetworkPolicy:        "networking.k8s.io/v1",
	intent.ClusterNetworkPolicy: policyapi.GroupVersion.String(),
	intent.SecurityGroup:        v1alpha1.GroupVersion.String(),
}

// maxEvents is how many problems of one policy have Events.
const maxEvents = 20

func problemsOfPolicies(list []known) []reconcile.Problem {
	var all []reconcile.Problem
	for _, k := range list {
		about := &corev1.ObjectReference{
			APIVersion: apiVersions[k.ref.Kind], Kind: string(k.ref.Kind), Namespace: k.ref.Namespace, Name: k.ref.Name,
			UID: k.object.GetUID(),
		}
		for _, p := range k.problems[:min(len(k.problems), maxEvents)] {
			all = append(all,
				reconcile.Problem{About: about, Reason: string(p.Reason), Message: reconcile.MessageOf(p, p.Object)})
		}
	}
	return all
}

func problemsOfEndpoints(problems []policies.EndpointProblem) []reconcile.Problem {
	list := make([]reconcile.Problem, len(problems))
	for i, p := range problems {
		about := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name,
			UID: types.UID(p.UID)}
		if p.Port {
			about.APIVersion, about.Kind = v1alpha1.GroupVersion.String(), "Port"
		}
		list[i] = reconcile.Problem{About: about, Reason: string(p.Reason),
			Message: reconcile.MessageOf(p.Problem, p.Object)}
	}
	return list
}

// write brings the status of a policy to what is known of it.
func (s *policyStatus) write(ctx context.Context, k known, refused []server.NodeRefusal) error {
	programmed := s.policies.hub.ProgrammedNodes(k.ref)
	now := k.object.DeepCopyObject().(client.Object)
	switch o := now.(type) {
	case *v1alpha1.SecurityGroup:
		o.Status.Nodes, o.Status.ProgrammedNodes = int32(programmed.Wanted), int32(programmed.Programmed) //nolint:gosec // numbers of nodes
		setPolicyConditions(&o.Status.Conditions, o.Generation, k.problems, programmed, refused)
		if equality.Semantic.DeepEqual(o.Status, k.object.(*v1alpha1.SecurityGroup).Status) {
			return nil
		}
	case *unstructured.Unstructured:
		changed, err := setClusterConditions(o, k.problems, programmed, refused)
		if err != nil || !changed {
			return err
		}
	}
	err := s.Status().Patch(ctx, now, client.MergeFromWithOptions(k.object, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("status of %s: %w", k.ref, err)
	}
	return nil
}

// setClusterConditions sets those of a ClusterNetworkPolicy, and keeps those of others.
func setClusterConditions(
	o *unstructured.Unstructured, problems []translate.Problem, programmed server.ProgrammedNodes,
	refused []server.NodeRefusal,
) (bool, error) {
	held := struct {
		Conditions []metav1.Condition `json:"conditions"`
	}{}
	status, _, err := unstructured.NestedMap(o.Object, "status")
	if err == nil && status != nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(status, &held)
	}
	if err != nil {
		return false, fmt.Errorf("status of clusternetworkpolicy %s: %w", o.GetName(), err)
	}
	before := slices.Clone(held.Conditions)
	setPolicyConditions(&held.Conditions, o.GetGeneration(), problems, programmed, refused)
	if equality.Semantic.DeepEqual(before, held.Conditions) {
		return false, nil
	}
	written, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&held)
	if err != nil {
		return false, fmt.Errorf("status of clusternetworkpolicy %s: %w", o.GetName(), err)
	}
	return true, unstructured.SetNestedField(o.Object, written["conditions"], "status", "conditions")
}

// maxProblems is how many a condition names.
const maxProblems = 5

func setPolicyConditions(
	conditions *[]metav1.Condition, generation int64, problems []translate.Problem, programmed server.ProgrammedNodes,
	refused []server.NodeRefusal,
) {
	accepted := metav1.Condition{
		Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted,
		ObservedGeneration: generation,
	}
	if len(problems) > 0 {
		var texts []string
		for _, p := range problems[:min(len(problems), maxProblems)] {
			texts = append(texts, reconcile.MessageOf(p, p.Object))
		}
		if more := len(problems) - len(texts); more > 0 {
			texts = append(texts, fmt.Sprintf("and %d more", more))
		}
		accepted.Status, accepted.Reason = metav1.ConditionFalse, v1alpha1.ReasonPartiallyInvalid
		accepted.Message = bounded(strings.Join(texts, ". "))
	}
	reconcile.SetCondition(conditions, accepted)
	// Older releases call it Ready; that of another writer stays.
	former := meta.FindStatusCondition(*conditions, v1alpha1.ConditionReady)
	if former != nil && (former.Reason == v1alpha1.ReasonReady || former.Reason == "PartlyInvalid") {
		reconcile.RemoveConditions(conditions, v1alpha1.ConditionReady)
	}
	progress := fmt.Sprintf("on %d of %d nodes with pods that it is for", programmed.Programmed, programmed.Wanted)
	reconcile.SetProgrammed(conditions, generation, programmed.Programmed < programmed.Wanted, progress, refused)
}

// maxMessage is what the API server takes as the message of a condition.
const maxMessage = 32 << 10

func bounded(text string) string {
	if len(text) > maxMessage {
		return strings.ToValidUTF8(text[:maxMessage-3], "") + "..."
	}
	return text
}
