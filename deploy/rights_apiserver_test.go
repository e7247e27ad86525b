// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package deploy

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"coelan.io/coelan/internal/metricsaccess"
)

// testControllerCreates has the token of a controller create what it may only under its own names.
func testControllerCreates(c cluster) {
	controller := c.holder("coelan-controller", "worker1")
	named := func(resource schema.GroupVersionResource, kind string, metadata map[string]any, typ string) object {
		value := map[string]any{"apiVersion": resource.GroupVersion().String(), "kind": kind, "metadata": metadata}
		metadata["namespace"] = coelanNamespace
		if typ != "" {
			value["type"] = typ
		}
		return object{resource, value}
	}
	secret := func(name, typ string) object {
		o := named(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, "Secret", map[string]any{
			"name": name, "annotations": map[string]any{corev1.ServiceAccountNameKey: "coelan-agent"},
		}, typ)
		if typ == string(corev1.SecretTypeTLS) {
			o.value["data"] = map[string]any{"tls.crt": "", "tls.key": ""}
		}
		return o
	}
	configMap := func(name string) object {
		return named(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "ConfigMap", map[string]any{"name": name}, "")
	}
	lease := func(name string) object {
		resource := schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
		return named(resource, "Lease", map[string]any{"name": name}, "")
	}
	generated := secret("", "")
	generated = with(generated, "coelan-memberlist", "metadata", "generateName")
	const token = string(corev1.SecretTypeServiceAccountToken)
	// Until the API server knows the Role and the policies, it refuses all or takes all.
	for _, o := range []object{secret("before", ""), configMap("before"), lease("before")} {
		ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
		ticker := time.NewTicker(100 * time.Millisecond)
		for err := create(o)(ctx, controller); !refused(err, "a controller creates no "); err = create(o)(ctx, controller) {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				c.Fatalf("the policies of controllers are not enforced: %v", err)
			}
		}
		ticker.Stop()
		cancel()
	}
	for name, tc := range map[string]struct {
		object object
		denied string
	}{
		"its certificate":                         {secret("coelan-controller-tls", string(corev1.SecretTypeTLS)), ""},
		"the keys of the membership":              {secret("coelan-memberlist", ""), ""},
		"another Secret":                          {secret("another", ""), "no Secrets but"},
		"a token of a service account":            {secret("another", token), "no Secrets but"},
		"a token under the name of its own":       {secret("coelan-memberlist", token), "no Secrets but"},
		"a token in the place of its certificate": {secret("coelan-controller-tls", token), "no Secrets but"},
		"a Secret whose name is generated":        {generated, "no Secrets but"},
		"its authority":                           {configMap("coelan-controller-ca"), ""},
		"another ConfigMap":                       {configMap("kube-root-ca.crt.2"), "no ConfigMaps but"},
		"its Lease":                               {lease("coelan-controller"), ""},
		"another Lease":                           {lease("another"), "no Leases but"},
	} {
		switch err := create(tc.object)(c.Context(), controller); {
		case tc.denied == "" && err != nil && !apierrors.IsAlreadyExists(err):
			c.Errorf("%s: %v", name, err)
		case tc.denied != "" && !refused(err, tc.denied):
			c.Errorf("%s: %v, want a refusal: %s", name, err, tc.denied)
		}
	}
	// The policies concern controllers alone.
	if err := create(secret("another", ""))(c.Context(), c.admin); err != nil {
		c.Error(err)
	}
}

// The metrics are for clients with the ClusterRole coelan-metrics-reader: agents ask the API server
// with rights that they have.
func testMetrics(c cluster, agent kubernetes.Interface) {
	guard := metricsaccess.NewGuard(slog.New(slog.DiscardHandler), agent.AuthenticationV1().TokenReviews(), agent.AuthorizationV1().SubjectAccessReviews())
	served := guard.Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	_, err := c.api.CoreV1().ServiceAccounts(coelanNamespace).Create(c.Context(), &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: "prometheus"},
	}, metav1.CreateOptions{})
	c.must(err)
	_, err = c.api.RbacV1().ClusterRoleBindings().Create(c.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "prometheus"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "coelan-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: coelanNamespace, Name: "prometheus"}},
	}, metav1.CreateOptions{})
	c.must(err)
	get := func(token string) int {
		r := httptest.NewRequestWithContext(c.Context(), http.MethodGet, metricsaccess.Path, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		served.ServeHTTP(w, r)
		return w.Code
	}
	// The API server learns of the binding after a while; until then each token of
	// the account is refused.
	reader := 0
	for deadline := time.Now().Add(time.Minute); reader != http.StatusOK && time.Now().Before(deadline); time.Sleep(time.Second) {
		reader = get(c.token("prometheus", ""))
	}
	if reader != http.StatusOK {
		c.Errorf("a reader of metrics gets %d", reader)
	}
	if code := get(c.token("other", "")); code != http.StatusForbidden {
		c.Errorf("another service account gets %d", code)
	}
	if code := get("made.up.token"); code != http.StatusUnauthorized {
		c.Errorf("a token that nobody has made gets %d", code)
	}
}
