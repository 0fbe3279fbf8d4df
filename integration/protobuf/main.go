// How the kinds that are named on standard input ("v1 Pod", one a line) are written as protobuf, as JSON.
//
// The Go types hold what generated.proto lacks: which fields are inlined in JSON, and which zero values JSON leaves out.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// Types that are written in a way of their own.
var special = map[string]bool{"Quantity": true, "Time": true, "MicroTime": true, "Duration": true, "IntOrString": true,
	"RawExtension": true, "FieldsV1": true}

// Message name to field number to [JSON name ("" if inlined), type ("*" before it: a zero value is shown)].
var messages = map[string]map[string][2]string{}

func main() {
	kinds := map[string]string{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		version, kind, _ := strings.Cut(lines.Text(), " ")
		made, err := scheme.Scheme.New(schema.FromAPIVersionAndKind(version, kind))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		kinds[lines.Text()] = name(reflect.TypeOf(made).Elem())
	}
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{"kinds": kinds, "messages": messages}); err != nil {
		panic(err)
	}
}

// The type as the table says it; its messages are added to the table.
func name(of reflect.Type) string {
	switch of.Kind() {
	case reflect.Pointer:
		return name(of.Elem())
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Int32, reflect.Int64:
		return "int"
	case reflect.Map:
		return "{}" + name(of.Elem())
	case reflect.Struct:
		return message(of)
	case reflect.Slice:
		if of.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		if of.PkgPath() != "" { // a named list is a message of one field
			return "[items]" + name(of.Elem())
		}
		return "[]" + name(of.Elem())
	}
	panic("no wire form is known of " + of.String())
}

func message(of reflect.Type) string {
	if special[of.Name()] {
		return of.Name()
	}
	called := strings.TrimPrefix(strings.TrimPrefix(of.PkgPath(), "k8s.io/api/"), "k8s.io/apimachinery/pkg/apis/") + "." + of.Name()
	if _, known := messages[called]; known {
		return called
	}
	fields := map[string][2]string{}
	messages[called] = fields
	for number := range of.NumField() {
		field := of.Field(number)
		wire, tagged := field.Tag.Lookup("protobuf")
		if !tagged || wire == "-" {
			continue
		}
		shown, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		kept := ""
		if field.Type.Kind() == reflect.Pointer || shown != "" && !strings.Contains(options, "omit") {
			kept = "*"
		}
		fields[strings.Split(wire, ",")[1]] = [2]string{shown, kept + name(field.Type)}
	}
	return called
}
