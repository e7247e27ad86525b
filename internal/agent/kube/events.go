// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"coelan.io/coelan/api/v1alpha1"
)

// Recorder writes Events. It keeps them back while the API server is away, joins equal ones, and
// limits how many one object gets; client-go does all of that.
type Recorder struct {
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
}

// NewRecorder starts a Recorder; Close ends it.
func (c *Client) NewRecorder(ctx context.Context) *Recorder {
	b := record.NewBroadcaster(record.WithContext(ctx))
	b.StartRecordingToSink(&typedv1.EventSinkImpl{Interface: c.api.CoreV1().Events("")})
	source := corev1.EventSource{Component: "coelan-agent", Host: c.node}
	return &Recorder{broadcaster: b, recorder: b.NewRecorder(scheme.Scheme, source)}
}

// Close ends the Recorder; Events that were not written yet are lost.
func (r *Recorder) Close() { r.broadcaster.Shutdown() }

// PodWarning writes an Event of type Warning about a pod. It does not block.
func (r *Recorder) PodWarning(namespace, name, uid, reason, message string) {
	r.warn(&corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name, UID: types.UID(uid),
	}, reason, message)
}

// NodeWarning writes an Event of type Warning about a node. It does not block.
func (r *Recorder) NodeWarning(name, uid, reason, message string) {
	r.warn(&corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: types.UID(uid)}, reason, message)
}

// PortWarning writes an Event of type Warning about a Port. It does not block.
func (r *Recorder) PortWarning(namespace, name, uid, reason, message string) {
	r.warn(&corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "Port", Namespace: namespace, Name: name, UID: types.UID(uid),
	}, reason, message)
}

// ServiceWarning writes an Event of type Warning about a Service. It does not block.
func (r *Recorder) ServiceWarning(namespace, name, uid, reason, message string) {
	r.warn(&corev1.ObjectReference{
		APIVersion: "v1", Kind: "Service", Namespace: namespace, Name: name, UID: types.UID(uid),
	}, reason, message)
}

// ObjectWarning writes an Event of type Warning about an object of which the agent does not know
// the UID. It does not block.
func (r *Recorder) ObjectWarning(apiVersion, kind, namespace, name, reason, message string) {
	r.warn(&corev1.ObjectReference{APIVersion: apiVersion, Kind: kind, Namespace: namespace, Name: name}, reason,
		message)
}

// ServiceNotice writes an Event of type Normal about a Service. It does not block.
func (r *Recorder) ServiceNotice(namespace, name, uid, reason, message string) {
	r.recorder.Event(&corev1.ObjectReference{
		APIVersion: "v1", Kind: "Service", Namespace: namespace, Name: name, UID: types.UID(uid),
	}, corev1.EventTypeNormal, reason, message)
}

// maxMessage is what the API server takes at most.
const maxMessage = 1024

func (r *Recorder) warn(about *corev1.ObjectReference, reason, message string) {
	if len(message) > maxMessage {
		message = message[:maxMessage-3] + "..."
	}
	r.recorder.Event(about, corev1.EventTypeWarning, reason, message)
}
