// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// create is POST. What has a subresource status gets none here.
func (a *API) create(w http.ResponseWriter, r *http.Request, q query) {
	var o object
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		status(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	if q.group != "" {
		delete(o, "status")
	}
	o["metadata"] = map[string]any(o.meta())
	q.name, _ = o.meta()["name"].(string)
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, exists := a.objects[q.resource][q.key()]; exists {
		status(w, http.StatusConflict, metav1.StatusReasonAlreadyExists, q.resource+" "+q.key()+" already exists")
		return
	}
	a.born(o, q.resource, q.key())
	a.put(q.resource, q.key(), o)
	answer(w, http.StatusCreated, o)
}

// born gives a new object what the API server gives it. The caller holds mu.
func (a *API) born(o object, resource, key string) {
	m := o.meta()
	if uid, _ := m["uid"].(string); uid == "" {
		m["uid"] = fmt.Sprintf("uid-%s-%s-%d", resource, key, a.revision)
	}
	if t, _ := m["creationTimestamp"].(string); t == "" {
		m["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	}
}

// patch is PATCH with a merge patch (RFC 7386), of the status or of everything but it.
func (a *API) patch(w http.ResponseWriter, r *http.Request, q query) {
	var patch object
	if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
		status(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	old, ok := a.objects[q.resource][q.key()]
	if !ok {
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound, q.resource+" "+q.key())
		return
	}
	if uid, given := patch.meta()["uid"]; given && uid != old.meta()["uid"] {
		status(w, http.StatusConflict, metav1.StatusReasonConflict, "the UID is another")
		return
	}
	switch {
	case q.status && q.group == "":
		delete(patch, "spec") // metadata can be changed by way of a pod's status
	case q.status:
		patch = object{"status": patch["status"]}
	case q.group != "":
		delete(patch, "status")
	}
	merged, _ := merge(map[string]any(old), map[string]any(patch)).(map[string]any)
	// What the patch does not name is still the old object's, which watchers may be reading.
	now := object(merged).clone()
	a.put(q.resource, q.key(), now)
	answer(w, http.StatusOK, now)
}

// merge is the algorithm of RFC 7386; it changes neither of its arguments.
func merge(target, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	out := map[string]any{}
	t, _ := target.(map[string]any)
	for k, v := range t {
		out[k] = v
	}
	for k, v := range p {
		if v == nil {
			delete(out, k)
			continue
		}
		out[k] = merge(out[k], v)
	}
	return out
}

// delete is DELETE, with the precondition of a UID.
func (a *API) delete(w http.ResponseWriter, r *http.Request, q query) {
	var options metav1.DeleteOptions
	_ = json.NewDecoder(r.Body).Decode(&options) // a body is not needed
	a.mu.Lock()
	defer a.mu.Unlock()
	o, ok := a.objects[q.resource][q.key()]
	if !ok {
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound, q.resource+" "+q.key())
		return
	}
	if p := options.Preconditions; p != nil && p.UID != nil && string(*p.UID) != o.meta()["uid"] {
		status(w, http.StatusConflict, metav1.StatusReasonConflict, "the UID is another")
		return
	}
	a.drop(q.resource, q.key())
	answer(w, http.StatusOK,
		metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
}
