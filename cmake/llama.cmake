# llama.cpp 0.4.0 as the target modeld::llama, and MODELD_LLAMA_LIBDIR: the folder of its libraries.
#
# Looked for in this order: MODELD_LLAMA_ROOT, what tools/setup.sh fetched, find_package(llama).  Its headers
# for chat templates belong to no installation: where they lack, the fetched ones of the same release are used.

set(llama_wanted 0.4.0)
set(fetched ${PROJECT_SOURCE_DIR}/.deps/llama)

if(MODELD_LLAMA_ROOT)
    set(lib_hints ${MODELD_LLAMA_ROOT}/lib ${MODELD_LLAMA_ROOT}/lib64 ${MODELD_LLAMA_ROOT}/bin ${MODELD_LLAMA_ROOT})
    set(include_hints ${MODELD_LLAMA_ROOT}/include)
elseif(EXISTS ${fetched}/lib)
    set(lib_hints ${fetched}/lib)
    set(include_hints ${fetched}/include)
else()
    find_package(llama CONFIG QUIET)
    if(NOT llama_FOUND)
        message(FATAL_ERROR "llama.cpp is missing: run tools/setup.sh (or just `make`), or give -DMODELD_LLAMA_ROOT=DIR")
    endif()
    set(lib_hints ${LLAMA_LIB_DIR})
    set(include_hints ${LLAMA_INCLUDE_DIR})
endif()

# The fetched libraries carry accelerator and version in their names, installed ones carry nothing.
set(suffixes .v${llama_wanted})
if(NOT MODELD_ACCEL STREQUAL "cpu")
    set(suffixes .${MODELD_ACCEL}.v${llama_wanted})
endif()

set(llama_files)
foreach(name llama-common llama ggml ggml-base)
    unset(file)
    find_library(file NAMES lib${name}${suffixes}.so ${name} PATHS ${lib_hints} NO_DEFAULT_PATH NO_CACHE)
    if(NOT file)
        message(FATAL_ERROR "lib${name} (llama.cpp ${llama_wanted}, MODELD_ACCEL=${MODELD_ACCEL}) is not in: "
            "${lib_hints}\nrun tools/setup.sh with the same MODELD_ACCEL")
    endif()
    list(APPEND llama_files ${file})
    get_filename_component(MODELD_LLAMA_LIBDIR ${file} DIRECTORY)
endforeach()

unset(llama_h)
unset(chat_h)
find_path(llama_h llama.h PATHS ${include_hints} ${fetched}/include NO_DEFAULT_PATH NO_CACHE)
find_path(chat_h chat.h PATHS ${include_hints} ${fetched}/include PATH_SUFFIXES common NO_DEFAULT_PATH NO_CACHE)
if(NOT llama_h OR NOT chat_h)
    message(FATAL_ERROR "llama.h and chat.h of llama.cpp ${llama_wanted} are not in: "
        "${include_hints};${fetched}/include\nrun tools/setup.sh with the same MODELD_LLAMA_ROOT")
endif()
set(llama_includes ${llama_h} ${chat_h})
get_filename_component(above ${chat_h} PATH)
if(EXISTS ${above}/vendor)
    list(APPEND llama_includes ${above}/vendor)
endif()
list(REMOVE_DUPLICATES llama_includes)

# The library itself says which release it is.  Asked once for each file.
if(NOT "${llama_files}" STREQUAL "${MODELD_LLAMA_ASKED}")
    unset(MODELD_LLAMA_RUNS CACHE)
    file(WRITE ${PROJECT_BINARY_DIR}/llama-version.c
        "#include <stdio.h>\nconst char *llama_version(void);\nint main(void) { puts(llama_version()); return 0; }\n")
    try_run(MODELD_LLAMA_RUNS llama_links ${PROJECT_BINARY_DIR}/llama-version ${PROJECT_BINARY_DIR}/llama-version.c
        LINK_LIBRARIES ${llama_files}
        RUN_OUTPUT_VARIABLE llama_found COMPILE_OUTPUT_VARIABLE llama_trouble)
    if(NOT llama_links OR NOT MODELD_LLAMA_RUNS STREQUAL "0")
        message(FATAL_ERROR "the llama.cpp libraries in ${MODELD_LLAMA_LIBDIR} are not release ${llama_wanted}: a program "
            "that asks for the version does not link or run\n${llama_trouble}${llama_found}")
    endif()
    string(STRIP "${llama_found}" llama_found)
    string(REGEX MATCH "^[0-9]+\\.[0-9]+\\.[0-9]+" llama_release "${llama_found}")
    if(NOT llama_release STREQUAL llama_wanted)
        message(FATAL_ERROR "llama.cpp ${llama_found} in ${MODELD_LLAMA_LIBDIR}: this modeld is made for ${llama_wanted}")
    endif()
    message(STATUS "llama.cpp ${llama_found} (${MODELD_ACCEL}) in ${MODELD_LLAMA_LIBDIR}")
    set(MODELD_LLAMA_ASKED "${llama_files}" CACHE INTERNAL "libraries whose version was found right")
endif()

add_library(modeld::llama INTERFACE IMPORTED)
target_include_directories(modeld::llama SYSTEM INTERFACE ${llama_includes})
target_link_libraries(modeld::llama INTERFACE ${llama_files})
